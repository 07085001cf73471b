/**
 * The table of measurements: a line a computation of a shape, beside the limit and a report to compare with.
 * @import {BenchLine} from './bench_words.js'
 */

import { element } from '../dom.js';
import { microseconds } from './bench_words.js';

const HEADINGS = [
  'Shape',
  'Computed by',
  'Call, µs',
  'Spread',
  'Attention, µs',
  'Limit, µs',
  'Times the limit',
  'Against the file',
];

export class BenchTable {
  #body = element('tbody');
  element = element(
    'div',
    { class: 'table-frame', role: 'region', 'aria-label': 'Measurements', tabIndex: 0 },
    element(
      'table',
      { class: 'cases benches' },
      element('thead', {}, element('tr', {}, ...HEADINGS.map((words) => element('th', { scope: 'col' }, words)))),
      this.#body,
    ),
  );

  /**
   * @param {BenchLine[]} lines
   * @param {(number | null)[]} against
   */
  show(lines, against) {
    this.#body.replaceChildren(...lines.map((line, index) => row(line, against[index] ?? null)));
  }
}

/**
 * @param {BenchLine} line
 * @param {number | null} against
 */
function row({ shape, what, seconds, spread, attention, limit, reason }, against) {
  const figures = [
    microseconds(seconds),
    `${Math.round(100 * spread)} %`,
    microseconds(attention),
    microseconds(limit),
    ((attention ?? seconds ?? 0) / limit).toFixed(2),
    against === null ? '' : against.toFixed(2),
  ];
  const cells = reason
    ? [element('td', { colSpan: figures.length }, `not run: ${reason}`)]
    : figures.map((figure) => element('td', { class: 'number' }, figure));
  return element('tr', {}, element('th', { scope: 'row' }, shape), element('td', {}, what), ...cells);
}
