/**
 * Results as files. Pure.
 * @import {BatchRow} from './batch_run.js'
 * @import {Values} from './template.js'
 */

import Papa from 'papaparse';
import { stateOf } from './batch_run.js';

/**
 * @typedef {object} ResultRow
 * @property {Values} input
 * @property {string} prompt
 * @property {string} output
 * @property {Record<string, number> | null} probabilities
 * @property {unknown} parsed  The output as JSON; undefined where it was not asked for or is not whole.
 * @property {string} state
 * @property {string | null} error
 * @property {number | null} prompt_tokens
 * @property {number | null} completion_tokens
 * @property {number | null} seconds
 */

/** What a spreadsheet would run as a formula: all that begins like one, in full width too, but a plain number. */
const FORMULA = /^(?![+-]?\d+([.,]\d+)?$)[=+\-@\t\r\n＝＋－＠]/;

/**
 * @param {BatchRow} row
 * @returns {ResultRow}
 */
export function resultOf(row) {
  const { values, outcome } = row;
  const content = outcome?.job.messages?.at(-1)?.content;
  return {
    input: values,
    prompt: typeof content === 'string' ? content : '',
    output: outcome?.text ?? '',
    probabilities: outcome?.probabilities ?? null,
    parsed: outcome?.value,
    state: stateOf(row),
    error: outcome?.error?.message ?? null,
    prompt_tokens: outcome?.tokens?.prompt ?? null,
    completion_tokens: outcome?.tokens?.completion ?? null,
    seconds: outcome?.seconds == null ? null : Math.round(outcome.seconds * 1000) / 1000,
  };
}

/**
 * CSV with the input's columns first, then the output, a column for each field of JSON answers and for each label's
 * probability, and what became of the row. A cell that a spreadsheet would take for a formula gets a ' in front.
 * @param {string[]} columns
 * @param {ResultRow[]} results
 */
export function toCsv(columns, results) {
  const fields = distinctKeys(results.map(({ parsed }) => parsed));
  const labels = distinctKeys(results.map(({ probabilities }) => probabilities));
  const ours = [
    'output',
    ...fields,
    ...labels.map((label) => `p(${label})`),
    ...['state', 'error', 'prompt_tokens', 'completion_tokens', 'seconds'],
  ];
  const data = results.map((row) => [
    ...columns.map((column) => row.input[column] ?? ''),
    row.output,
    ...fields.map((name) => cell(memberOf(row.parsed, name))),
    ...labels.map((label) => cell(memberOf(row.probabilities, label))),
    row.state,
    ...[row.error, row.prompt_tokens, row.completion_tokens, row.seconds].map(cell),
  ]);
  const names = [...columns];
  for (const name of ours) names.push(unlike(name, names));
  return Papa.unparse({ fields: names, data }, { escapeFormulae: FORMULA });
}

/** @param {ResultRow[]} results */
export function toJson(results) {
  return `${JSON.stringify(results, null, 2)}\n`;
}

/** @param {ResultRow[]} results */
export function toJsonLines(results) {
  return results.map((row) => `${JSON.stringify(row)}\n`).join('');
}

/**
 * @param {unknown[]} values
 * @returns {string[]} The names of their members, each once.
 */
function distinctKeys(values) {
  const objects = values.filter((value) => value !== null && typeof value === 'object' && !Array.isArray(value));
  return [...new Set(objects.flatMap((value) => Object.keys(/** @type {object} */ (value))))];
}

/**
 * @param {unknown} value
 * @param {string} name
 * @returns {unknown}
 */
function memberOf(value, name) {
  const isThere = value !== null && typeof value === 'object' && Object.hasOwn(value, name);
  return isThere ? /** @type {Record<string, unknown>} */ (value)[name] : null;
}

/** @param {unknown} value */
function cell(value) {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : value;
}

/**
 * `name`, with a number where it is taken.
 * @param {string} name
 * @param {string[]} taken
 */
function unlike(name, taken) {
  let distinct = name;
  for (let number = 2; taken.includes(distinct); number += 1) distinct = `${name}_${number}`;
  return distinct;
}
