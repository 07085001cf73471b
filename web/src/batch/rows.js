/** From a template and a text of rows to prompts. Pure. */

import Papa from 'papaparse';

/** `{name}` is a placeholder; `{{` and `}}` are the braces themselves. */
const PLACEHOLDER = /\{\{|\}\}|\{([^{}\n]+)\}/g;

/**
 * @typedef {Record<string, string>} Row  Values by column.
 * @typedef {{columns: string[], rows: Row[]}} Table
 */

/**
 * The names of a template's placeholders, each once, in the order in which they come.
 * @param {string} template
 * @returns {string[]}
 */
export function placeholders(template) {
  const names = Array.from(template.matchAll(PLACEHOLDER), ([, name]) => (name ?? '').trim());
  return [...new Set(names.filter((name) => name !== ''))];
}

/**
 * @param {string} template
 * @param {Row} row
 * @returns {string}
 */
export function fill(template, row) {
  return template.replace(PLACEHOLDER, (match, name) => {
    if (name === undefined) return match.charAt(0);
    return Object.hasOwn(row, name.trim()) ? (row[name.trim()] ?? match) : match;
  });
}

/**
 * The rows of a text: CSV where its first line names every placeholder, else one row a line for a template with one
 * placeholder. Throws an `Error` in plain words where the text and the template do not fit.
 * @param {string} text
 * @param {string} template
 * @returns {Table}
 */
export function parseRows(text, template) {
  const names = placeholders(template);
  if (names.length === 0) throw new Error('Put a {placeholder} in the template where the text of each row goes.');
  const csv = parseCsv(text);
  const missing = names.filter((name) => !csv.columns.includes(name));
  if (missing.length === 0) return csv;
  if (names.length > 1) {
    throw new Error(`The rows need a first line that names the columns; it lacks ${missing.join(', ')}.`);
  }
  const [name] = /** @type {[string]} */ (names);
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== '');
  return { columns: [name], rows: lines.map((line) => ({ [name]: line.trim() })) };
}

/**
 * @param {string} text
 * @returns {Table}
 */
function parseCsv(text) {
  // Rows are made here, not by the parser, whose assignments would lose a column named __proto__.
  /** @type {import('papaparse').ParseResult<string[]>} */
  const { data } = Papa.parse(text.trim(), { skipEmptyLines: 'greedy' });
  const [header = [], ...lines] = data;
  const columns = header.map((name, index) => unlike(header.slice(0, index), name.trim()));
  const rows = lines.map((line) => Object.fromEntries(columns.map((column, index) => [column, line[index] ?? ''])));
  return { columns, rows };
}

/**
 * `name`, with a number where a column before it has the same.
 * @param {string[]} before
 * @param {string} name
 */
function unlike(before, name) {
  const same = before.filter((other) => other.trim() === name).length;
  return same ? `${name}_${same + 1}` : name;
}
