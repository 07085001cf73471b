/**
 * The table of conformance cases: a line a case, with how far off it was, what computed it and why nothing faster did.
 * @import {CaseReport, VectorFile} from '../protocol.js'
 */

import { element } from '../dom.js';
import { errorInFigures, reasonsInWords } from './case_words.js';
import { hasWords } from './name_filter.js';

/** @typedef {'' | 'passed' | 'failed' | 'skipped' | 'not run'} Wanted  An outcome; '' is any. */

const HEADINGS = ['Case', 'Result', 'Worst error', 'Of its budget', 'Computed by', 'Why nothing faster'];

/**
 * @typedef {object} Line
 * @property {VectorFile} file
 * @property {CaseReport | null} report
 * @property {HTMLElement} row
 */

export class CaseTable {
  #body = element('tbody');
  /** @type {Map<string, Line>} */
  #lines = new Map();
  element = element(
    'div',
    { class: 'table-frame', role: 'region', 'aria-label': 'Cases', tabIndex: 0 },
    element(
      'table',
      { class: 'cases' },
      element('thead', {}, element('tr', {}, ...HEADINGS.map((words) => element('th', { scope: 'col' }, words)))),
      this.#body,
    ),
  );

  /** @param {VectorFile[]} files */
  list(files) {
    this.#lines = new Map(files.map((file) => [file.name, { file, report: null, row: notRun(file.name) }]));
    this.#body.replaceChildren(...Array.from(this.#lines.values(), ({ row }) => row));
  }

  /**
   * Shows the cases whose names have all words of `text` and whose outcome is the wanted one.
   * @param {string} text
   * @param {Wanted} wanted
   */
  filter(text, wanted) {
    const isNamed = hasWords(text);
    for (const { file, report, row } of this.#lines.values()) {
      row.hidden = !isNamed(file.name) || (wanted !== '' && wanted !== (report?.outcome ?? 'not run'));
    }
  }

  /** The files of the cases that show. */
  get shown() {
    return Array.from(this.#lines.values())
      .filter(({ row }) => !row.hidden)
      .map(({ file }) => file);
  }

  /** The reports so far, in the order of the table. */
  get reports() {
    return Array.from(this.#lines.values()).flatMap(({ report }) => report ?? []);
  }

  /**
   * Forgets what is known of these cases.
   * @param {VectorFile[]} files
   */
  clear(files) {
    for (const { name } of files) {
      const line = /** @type {Line} */ (this.#lines.get(name));
      line.report = null;
      line.row.replaceChildren(...notRun(name).childNodes);
    }
  }

  /**
   * @param {VectorFile} file
   * @returns {Line}
   */
  #add(file) {
    const line = { file, report: null, row: notRun(file.name) };
    this.#lines.set(file.name, line);
    this.#body.append(line.row);
    return line;
  }

  /** @param {CaseReport} report  Of a listed case, or of another one, which is added. */
  put(report) {
    const line = this.#lines.get(report.name) ?? this.#add({ name: report.name, operator: report.operator, url: '' });
    line.report = report;
    const why = report.detail || reasonsInWords(report.faster);
    line.row.replaceChildren(
      element('th', { scope: 'row' }, report.name),
      element('td', {}, stateOf(report.outcome)),
      element('td', { class: 'number' }, ...errorCells(report)),
      element('td', { class: 'number' }, report.outcome === 'skipped' ? '' : shareMeter(report.share)),
      element('td', {}, report.tier),
      element('td', report.outcome === 'failed' ? { class: 'row-error' } : {}, why),
    );
  }
}

/** @param {string} name */
function notRun(name) {
  const empty = HEADINGS.slice(2).map(() => element('td'));
  return element('tr', {}, element('th', { scope: 'row' }, name), element('td', {}, stateOf('not run')), ...empty);
}

/** @param {string} state */
function stateOf(state) {
  return element('span', { class: 'state', 'data-state': state }, state);
}

/** @param {CaseReport} report */
function errorCells(report) {
  if (report.outcome === 'skipped') return [];
  const { error, budget } = errorInFigures(report);
  return [error, element('small', { title: report.where }, budget && ` of ${budget}`)];
}

/** @param {number | null} share */
function shareMeter(share) {
  if (share === null) return 'over';
  const percent = `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
  return element(
    'span',
    { class: 'share' },
    element('meter', { min: 0, max: 1, high: 0.9, optimum: 0, value: Math.min(share, 1), 'aria-hidden': true }),
    percent,
  );
}
