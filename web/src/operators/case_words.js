/**
 * Reports of conformance cases in words, figures and JSON. Pure.
 * @import {AdapterInfo, CaseReport} from '../protocol.js'
 */

/**
 * @param {CaseReport} report
 * @returns {{error: string, budget: string}}
 */
export function errorInFigures({ worst_error, budget }) {
  if (worst_error === 0) return { error: '0', budget: '' };
  return { error: figure(worst_error), budget: figure(budget) };
}

/** @param {number | null} value */
function figure(value) {
  if (value === null) return '∞';
  return value === 0 ? '0' : value.toExponential(1);
}

/** @param {Record<string, string>} faster */
export function reasonsInWords(faster) {
  return Object.entries(faster)
    .map(([tier, reason]) => `${tier}: ${reason}`)
    .join('; ');
}

/**
 * "40 of 89 cases passed, 1 failed, 2 skipped".
 * @param {CaseReport[]} reports
 * @param {number} total
 */
export function progressInWords(reports, total) {
  const count = (/** @type {string} */ outcome) => reports.filter((report) => report.outcome === outcome).length;
  const others = ['failed', 'skipped'].map((outcome) => [count(outcome), outcome]).filter(([number]) => number);
  return [`${count('passed')} of ${total} cases passed`, ...others.map((pair) => pair.join(' '))].join(', ');
}

/**
 * The export: the shape that `pageloom check --json` writes.
 * @param {string} backend
 * @param {AdapterInfo} adapter
 * @param {CaseReport[]} reports
 */
export function reportAsJson(backend, adapter, reports) {
  const count = (/** @type {string} */ outcome) => reports.filter((report) => report.outcome === outcome).length;
  const counts = { passed: count('passed'), failed: count('failed'), skipped: count('skipped') };
  return `${JSON.stringify({ backend, adapter, counts, cases: reports }, null, 1)}\n`;
}

/**
 * What of cases that both have run came out otherwise: the outcome, or what computed them.
 * @param {CaseReport[]} reports
 * @param {CaseReport[]} others
 */
export function differencesInWords(reports, others) {
  const known = new Map(others.map((other) => [other.name, other]));
  return reports.flatMap(({ name, outcome, tier }) => {
    const other = known.get(name);
    if (!other || (other.outcome === outcome && other.tier === tier)) return [];
    return [`${name}: ${outcome}${by(tier)} here, ${other.outcome}${by(other.tier)} there`];
  });
}

/** @param {string} tier */
function by(tier) {
  return tier && ` by ${tier}`;
}
