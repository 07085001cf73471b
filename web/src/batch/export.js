/**
 * Results as files. Pure.
 * @import {Row} from './rows.js'
 */

import Papa from 'papaparse';

/**
 * @typedef {object} ResultRow
 * @property {Row} input
 * @property {string} prompt
 * @property {string} state
 * @property {string} text
 * @property {string} error
 * @property {number | null} completionTokens
 */

/** What a spreadsheet would run as a formula: all that begins like one, but a plain number. */
const FORMULA = /^(?![+-]?\d+([.,]\d+)?$)[=+\-@\t\r]/;

/**
 * CSV with the input's columns first. A cell that a spreadsheet would take for a formula gets a ' in front.
 * @param {string[]} columns
 * @param {ResultRow[]} results
 */
export function toCsv(columns, results) {
  const ours = ['output', 'state', 'error', 'completion_tokens'];
  const data = results.map((row) => [
    ...columns.map((column) => row.input[column] ?? ''),
    row.text,
    row.state,
    row.error,
    row.completionTokens ?? '',
  ]);
  const fields = [...columns, ...ours.map((name) => (columns.includes(name) ? `${name}_2` : name))];
  return Papa.unparse({ fields, data }, { escapeFormulae: FORMULA });
}

/** @param {ResultRow[]} results */
export function toJson(results) {
  const rows = results.map((row) => ({
    input: row.input,
    prompt: row.prompt,
    output: row.text,
    state: row.state,
    error: row.error || null,
    completion_tokens: row.completionTokens,
  }));
  return `${JSON.stringify(rows, null, 2)}\n`;
}
