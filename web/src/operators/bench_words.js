/**
 * Measurements of the operators in figures and JSON, whatever backend they are of. Pure.
 * @import {AdapterInfo, BenchRow} from '../protocol.js'
 */

import { invalidArgument } from '../errors.js';

/**
 * @typedef {object} BenchReport  What `pageloom bench --json` writes, and the backend.
 * @property {string} backend
 * @property {Partial<AdapterInfo> & {name?: string}} [adapter]
 * @property {{name: string}} [cpu]
 * @property {any[]} results
 *
 * @typedef {object} BenchLine
 * @property {string} shape
 * @property {string} what
 * @property {number | null} seconds  The median of a call; null where it was not run.
 * @property {number} spread  The slowest less the quickest, over the median.
 * @property {number | null} attention  Seconds of attention alone.
 * @property {number} limit  Seconds that the device needs at the least.
 * @property {string} reason  Why it was not run.
 */

/**
 * @param {BenchReport} report
 * @returns {BenchLine[]}
 */
export function linesOf({ results }) {
  return results.flatMap((row) => (row.pairs ? pairLines(row) : [rowLine(row)]));
}

/**
 * What a report was measured on.
 * @param {BenchReport} report
 */
export function machineOf({ backend, adapter, cpu }) {
  return adapter?.description ?? adapter?.name ?? cpu?.name ?? backend ?? 'another machine';
}

/** @param {BenchRow & {what?: string}} row */
function rowLine({ shape, tier, what, seconds, attention_seconds, limit, reason }) {
  return line(shape, what ?? tier, seconds, limit, reason, attention_seconds);
}

/** @param {any} row  Of the CPU: in turns with a peer. */
function pairLines({ shape, threads, tier, pairs, limit }) {
  const kind = shape.new > 1 ? `prefill S=${shape.new}` : `decode T=${shape.total}`;
  const paged = shape.block_size ? ` blocks of ${shape.block_size}` : '';
  const name = `${kind} ${shape.num_heads}/${shape.kv_num_heads} ${shape.storage}${paged}, ${shape.part}, threads: ${threads}`;
  return [line(name, tier, pairs.ours, limit), line(name, 'the peer', pairs.peer, limit)];
}

/**
 * @param {string} shape
 * @param {string} what
 * @param {number[]} seconds
 * @param {number} limit
 * @param {string} [reason]
 * @param {number[]} [attention]
 * @returns {BenchLine}
 */
function line(shape, what, seconds, limit, reason = '', attention = []) {
  const middle = median(seconds);
  const spread = middle ? (Math.max(...seconds) - Math.min(...seconds)) / middle : 0;
  return { shape, what, seconds: middle, spread, attention: median(attention), limit, reason };
}

/**
 * @param {number[]} values
 * @returns {number | null}
 */
export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return null;
  const upper = /** @type {number} */ (sorted[middle]);
  return sorted.length % 2 ? upper : (upper + /** @type {number} */ (sorted[middle - 1])) / 2;
}

/** @param {number | null} seconds */
export function microseconds(seconds) {
  if (seconds === null) return '';
  const value = seconds * 1e6;
  return value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en');
}

/**
 * How many times as long each line takes as the line of another report with the same shape and computation.
 * @param {BenchLine[]} lines
 * @param {BenchLine[]} others
 * @returns {(number | null)[]}
 */
export function ratios(lines, others) {
  const known = new Map(others.map((other) => [`${other.shape}\n${other.what}`, other.seconds]));
  return lines.map(({ shape, what, seconds }) => {
    const other = known.get(`${shape}\n${what}`);
    return seconds && other ? seconds / other : null;
  });
}

/**
 * A report that somebody exported. Throws for another text.
 * @param {string} text
 * @param {'results' | 'cases'} list  What it has.
 */
export function readReport(text, list) {
  /** @type {any} */
  let report = null;
  try {
    report = JSON.parse(text);
  } catch {
    // Not JSON: refused below, like any other file.
  }
  if (!Array.isArray(report?.[list])) {
    const what = list === 'cases' ? 'check' : 'benchmark';
    throw invalidArgument(`that file is no exported ${what}: it has no list of ${list}`, 'file');
  }
  return report;
}
