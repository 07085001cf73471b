/**
 * Which rows are shown, and in which order. Pure.
 * @import {BatchRow, State} from './batch_run.js'
 */

import { stateOf } from './batch_run.js';

/**
 * @typedef {'all' | 'to run' | 'running' | 'done' | 'failed'} Group
 * @typedef {{by: (row: BatchRow) => string | number, descending: boolean}} Sorting
 */

/** @type {Record<Exclude<Group, 'all'>, State[]>} */
const STATES = {
  'to run': ['not run', 'outdated', 'stopped'],
  running: ['waiting', 'running'],
  done: ['done', 'cut off'],
  failed: ['failed'],
};
export const GROUPS = /** @type {Group[]} */ (['all', ...Object.keys(STATES)]);

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

/**
 * @param {Group} group
 * @param {BatchRow} row
 */
export function isIn(group, row) {
  return group === 'all' || STATES[group].includes(stateOf(row));
}

/**
 * @param {BatchRow[]} rows
 * @param {{group: Group, search: string, sorting: Sorting | null}} choice  `search` is found in values and answers.
 * @returns {BatchRow[]}
 */
export function arranged(rows, { group, search, sorting }) {
  const wanted = search.trim().toLowerCase();
  const shown = rows.filter((row) => isIn(group, row) && (wanted === '' || textOf(row).includes(wanted)));
  if (!sorting) return shown;
  const keyed = shown.map((row) => ({ row, key: sorting.by(row) }));
  keyed.sort(
    (a, b) => (sorting.descending ? compare(b.key, a.key) : compare(a.key, b.key)) || a.row.index - b.row.index,
  );
  return keyed.map(({ row }) => row);
}

/** @param {BatchRow} row */
function textOf({ values, outcome, live }) {
  return [...Object.values(values), live?.text ?? outcome?.text ?? ''].join('\n').toLowerCase();
}

/**
 * @param {string | number} a
 * @param {string | number} b
 */
function compare(a, b) {
  return typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(String(a), String(b));
}
