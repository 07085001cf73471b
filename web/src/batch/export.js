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

/**
 * CSV with the input's columns first.
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
  return Papa.unparse({
    fields: [...columns, ...ours.map((name) => (columns.includes(name) ? `${name}_2` : name))],
    data,
  });
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
