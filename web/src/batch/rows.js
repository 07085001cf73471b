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
    return row[name.trim()] ?? match;
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
  /** @type {import('papaparse').ParseResult<Row>} */
  const { data, meta } = Papa.parse(text.trim(), {
    header: true,
    skipEmptyLines: 'greedy',
    transformHeader: (header) => header.trim(),
  });
  return { columns: meta.fields ?? [], rows: data };
}
