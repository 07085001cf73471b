/**
 * Rows as text: which format a text is in, the rows in it, and rows as text again. Pure.
 * @import {Values} from './template.js'
 */

import Papa from 'papaparse';

/**
 * @typedef {'csv' | 'tsv' | 'jsonl' | 'json' | 'list'} Format
 * @typedef {{format: Format, header: boolean}} Reading  `header`: the first line of CSV or TSV names the columns.
 * @typedef {{columns: string[], rows: Values[]}} Table
 */

/** @type {Record<Format, string>} */
export const FORMATS = { list: 'Lines', csv: 'CSV', tsv: 'TSV', jsonl: 'JSON Lines', json: 'JSON array' };
/** The column of rows that have no names. */
const ONLY_COLUMN = 'text';
const NAME_LENGTH = 60;
/** More cannot be looked at, and each row has a value in each of them. */
const MOST_COLUMNS = 500;
/** @type {Reading} */
const JSON_LINES = { format: 'jsonl', header: false };

/**
 * The text of a file: UTF-16, as spreadsheets write it, where its byte order mark says so, else UTF-8; null where it is
 * neither.
 * @param {ArrayBuffer} bytes
 * @returns {string | null}
 */
export function decodeText(bytes) {
  const [first, second] = new Uint8Array(bytes, 0, Math.min(2, bytes.byteLength));
  const isLittle = first === 0xff && second === 0xfe;
  const encoding = isLittle ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : 'utf-8';
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/**
 * What the column of a list is called: as the template calls it, where that is one name.
 * @param {string[]} names  Columns that the template asks for.
 */
export function onlyColumn(names) {
  return names.length === 1 && names[0] ? names[0] : ONLY_COLUMN;
}

/**
 * How a text is best read. Lines with commas are CSV only where all of them have the same number of cells and the first
 * could be names, so that sentences stay whole.
 * @param {string} text
 * @param {string[]} names  Columns that the template asks for: a first line that has them all names the columns.
 * @returns {Reading}
 */
export function detect(text, names) {
  const trimmed = text.trim();
  if (trimmed.startsWith('[') && isJson(trimmed)) return { format: 'json', header: false };
  const lines = linesOf(trimmed);
  if (trimmed.startsWith('{') && isJson(lines[0] ?? '')) return { format: 'jsonl', header: false };
  for (const [format, delimiter] of /** @type {const} */ ([
    ['tsv', '\t'],
    ['csv', undefined],
  ])) {
    const cells = parseCells(trimmed, delimiter);
    const [first = []] = cells;
    if (format === 'tsv' && first.length === 1) continue;
    const asked = names.length > 0 && names.every((name) => first.some((cell) => cell.trim() === name));
    if (asked) return { format, header: true };
    const regular = first.length > 1 && cells.length > 1 && cells.every(({ length }) => length === first.length);
    if (regular && (format === 'tsv' || couldBeNames(first))) return { format, header: couldBeNames(first) };
  }
  return { format: 'list', header: false };
}

/**
 * The rows of a text. Throws an `Error` in plain words where it is not in that format.
 * @param {string} text
 * @param {Reading} reading
 * @param {string} [only]  What the column of a list is called.
 * @returns {Table}
 */
export function parseTable(text, { format, header }, only = ONLY_COLUMN) {
  const trimmed = text.trim();
  if (trimmed === '') return { columns: [], rows: [] };
  if (format === 'list') {
    return { columns: [only], rows: linesOf(trimmed).map((line) => ({ [only]: line.trim() })) };
  }
  if (format === 'json') return tableOf(parseJsonArray(trimmed));
  if (format === 'jsonl') return tableOf(linesOf(trimmed).map(parseJsonLine));
  const [first = [], ...rest] = parseCells(trimmed, format === 'tsv' ? '\t' : undefined);
  const lines = header ? rest : [first, ...rest];
  const width = rest.reduce((most, { length }) => Math.max(most, length), first.length);
  checkColumns(width);
  const names = Array.from({ length: width }, (_, index) => (header && first[index]?.trim()) || `column ${index + 1}`);
  const columns = names.map((name, index) => distinct(name, names.slice(0, index)));
  const rows = lines.map((line) => Object.fromEntries(columns.map((column, index) => [column, line[index] ?? ''])));
  return { columns, rows };
}

/**
 * The text of rows, which `parseTable` reads as the same rows. A list whose values do not fit a line becomes CSV, and
 * a single column with empty values, which would be empty lines, JSON Lines.
 * @param {Table} table
 * @param {Reading} reading
 * @returns {{text: string, reading: Reading}}
 */
export function writeTable({ columns, rows }, reading) {
  const cells = rows.map((row) => columns.map((column) => row[column] ?? ''));
  if (reading.format === 'list' && cells.every(([value = '']) => value === value.trim() && /^.+$/.test(value))) {
    return { text: cells.map(([value]) => value).join('\n'), reading };
  }
  if (reading.format === 'json') return { text: JSON.stringify(rows, null, 1), reading };
  const hasEmptyLines = columns.length === 1 && cells.some(([value = '']) => value.trim() === '');
  if (reading.format === 'jsonl' || hasEmptyLines)
    return { text: rows.map((row) => JSON.stringify(row)).join('\n'), reading: JSON_LINES };
  const format = reading.format === 'tsv' ? 'tsv' : 'csv';
  const text = Papa.unparse(
    { fields: columns, data: cells },
    { delimiter: format === 'tsv' ? '\t' : ',', newline: '\n' },
  );
  return { text, reading: { format, header: true } };
}

/** @param {string} text */
function linesOf(text) {
  return text.split(/\r?\n/).filter((line) => line.trim() !== '');
}

/** @param {string[]} cells */
function couldBeNames(cells) {
  const names = cells.map((cell) => cell.trim());
  const short = names.every((name) => name !== '' && name.length <= NAME_LENGTH && !/[.?!:]$/.test(name));
  const unspaced = cells.slice(1).every((cell) => !/^\s/.test(cell));
  return short && unspaced && names.every((name) => !Number.isFinite(Number(name)));
}

/**
 * Rows are made here, not by the parser, whose assignments would lose a column named __proto__.
 * @param {string} text
 * @param {string | undefined} delimiter  By default the comma, semicolon or bar that divides the lines alike; where the
 *   first line has none of them there is one column, whatever the others have.
 * @returns {string[][]}
 */
function parseCells(text, delimiter) {
  const isDivided = /^.*[,;|]/.test(text);
  const choice =
    delimiter || !isDivided ? { delimiter: delimiter ?? Papa.UNIT_SEP } : { delimitersToGuess: [',', ';', '|'] };
  return /** @type {import('papaparse').ParseResult<string[]>} */ (
    Papa.parse(text, { skipEmptyLines: 'greedy', ...choice })
  ).data;
}

/** @param {number} count */
function checkColumns(count) {
  if (count > MOST_COLUMNS) throw new Error(`These rows have ${count} columns; there may be ${MOST_COLUMNS}.`);
}

/**
 * `name`, with a number where a column before it has the same.
 * @param {string} name
 * @param {string[]} before
 */
function distinct(name, before) {
  const same = before.filter((other) => other === name).length;
  return same ? `${name}_${same + 1}` : name;
}

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * @param {string} text
 * @returns {unknown[]}
 */
function parseJsonArray(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (!Array.isArray(value)) throw new Error('This JSON is not an array; put the rows into [ and ].');
  return value;
}

/**
 * @param {string} line
 * @param {number} index
 * @returns {unknown}
 */
function parseJsonLine(line, index) {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new Error(`Row ${index + 1} is not JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/**
 * Objects are rows of their members, anything else is a row of one column.
 * @param {unknown[]} items
 * @returns {Table}
 */
function tableOf(items) {
  const rows = items.map((item) =>
    item !== null && typeof item === 'object' && !Array.isArray(item) ? Object.entries(item) : [[ONLY_COLUMN, item]],
  );
  const columns = [...new Set(rows.flatMap((members) => members.map(([name]) => String(name))))];
  checkColumns(columns.length);
  return {
    columns,
    rows: rows.map((members) => {
      const given = new Map(members.map(([name, value]) => [String(name), inWords(value)]));
      return Object.fromEntries(columns.map((column) => [column, given.get(column) ?? '']));
    }),
  };
}

/** @param {unknown} value */
function inWords(value) {
  if (value === null || value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
