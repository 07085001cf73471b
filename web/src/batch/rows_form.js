/**
 * Where rows come in: pasted, typed, dropped or picked, and how they are read.
 * @import {Format, Reading, Table} from './table_text.js'
 */

import { button, element, field } from '../dom.js';
import { bytesInWords, counted } from '../words.js';
import { decodeText, detect, FORMATS, onlyColumn, parseTable, writeTable } from './table_text.js';

const LARGEST_FILE = 16e6;
/** Longer texts are read once typing pauses. */
const SHORT_TEXT = 20_000;
const PAUSE_MS = 300;
const ROWS_HINT = 'Paste rows or drop a file:\nCSV, TSV, JSON, JSON Lines,\nor one row a line';

export class RowsForm {
  #onTable;
  #names;
  #text = element('textarea', {
    rows: 5,
    spellcheck: false,
    wrap: 'off',
    placeholder: ROWS_HINT,
  });
  #format = element('select', { 'aria-label': 'Read as' });
  #header = element('input', { type: 'checkbox' });
  #headerLine = element('label', { class: 'check' }, this.#header, 'First line names the columns');
  #told = element('p', { class: 'told' });
  #problem = element('p', { class: 'problem', role: 'alert' });
  #picker = element('input', { type: 'file', accept: '.csv,.tsv,.txt,.json,.jsonl,.ndjson,text/*,application/json' });
  /** @type {Reading | null} How the text is read where that is not as it would be detected. */
  #corrected = null;
  #timer = 0;

  /**
   * @param {(table: Table, reading: Reading) => void} onTable
   * @param {() => string[]} names  The columns that the template asks for.
   */
  constructor(onTable, names) {
    this.#onTable = onTable;
    this.#names = names;
    this.#format.append(
      element('option', { value: '' }, 'detected'),
      ...Object.entries(FORMATS).map(([value, label]) => element('option', { value }, label)),
    );
    this.#text.addEventListener('input', () => this.#readSoon());
    this.#text.addEventListener('paste', () => {
      const isReplaced = this.#text.selectionStart === 0 && this.#text.selectionEnd === this.#text.value.length;
      if (isReplaced) this.#corrected = null;
    });
    this.#format.addEventListener('change', () => this.#correct());
    this.#header.addEventListener('change', () => this.#correct());
    this.#picker.addEventListener('change', () => {
      const [file] = this.#picker.files ?? [];
      if (file) this.takeFile(file);
      this.#picker.value = '';
    });
    this.#picker.hidden = true;
    const choose = button('Choose a file', () => this.#picker.click(), { class: 'quiet choose' });
    const read = element('div', { class: 'read-as' }, 'Read as', this.#format, this.#told);
    this.element = element(
      'div',
      { class: 'rows-form' },
      field('Rows', this.#text),
      choose,
      this.#picker,
      read,
      this.#headerLine,
      this.#problem,
    );
    this.#tell({ columns: [], rows: [] }, null);
  }

  /** @param {File} file */
  async takeFile(file) {
    if (file.size > LARGEST_FILE) {
      const limit = `${bytesInWords(file.size)}; this page takes up to ${bytesInWords(LARGEST_FILE)} of rows`;
      this.#problem.textContent = `${file.name} has ${limit}. Divide it.`;
      return;
    }
    const text = decodeText(await file.arrayBuffer());
    if (text === null) {
      this.#problem.textContent = `${file.name} is no text in UTF-8 or UTF-16. Save it as UTF-8.`;
      return;
    }
    this.takeText(text);
  }

  /** @param {string} text */
  takeText(text) {
    this.#corrected = null;
    this.#text.value = text;
    this.#read();
  }

  /**
   * Shows rows that were changed elsewhere.
   * @param {Table} table
   * @param {Reading} reading  How they were read; they are written in the same way if they can be.
   */
  show(table, reading) {
    const written = writeTable(table, reading);
    this.#text.value = written.text;
    const found = JSON.stringify(detect(written.text, this.#names()));
    this.#corrected = found === JSON.stringify(written.reading) ? null : written.reading;
    this.#problem.textContent = '';
    this.#tell(table, written.reading);
  }

  #readSoon() {
    clearTimeout(this.#timer);
    if (this.#text.value === '') this.#corrected = null;
    if (this.#text.value.length < SHORT_TEXT) this.#read();
    else this.#timer = window.setTimeout(() => this.#read(), PAUSE_MS);
  }

  #correct() {
    const format = /** @type {Format | ''} */ (this.#format.value);
    this.#corrected = format === '' ? null : { format, header: this.#header.checked };
    this.#read();
  }

  #read() {
    const text = this.#text.value;
    const names = this.#names();
    const reading = this.#corrected ?? detect(text, names);
    try {
      const table = parseTable(text, reading, onlyColumn(names));
      this.#problem.textContent = '';
      this.#tell(table, reading);
      this.#onTable(table, reading);
    } catch (error) {
      this.#problem.textContent = /** @type {Error} */ (error).message;
    }
  }

  /**
   * @param {Table} table
   * @param {Reading | null} reading
   */
  #tell({ columns, rows }, reading) {
    const isEmpty = rows.length === 0 || !reading;
    this.#format.value = this.#corrected?.format ?? '';
    /** @type {HTMLOptionElement} */ (this.#format.options[0]).textContent =
      isEmpty || this.#corrected ? 'detected' : `${FORMATS[reading.format]} (detected)`;
    this.#headerLine.hidden = isEmpty || !(reading.format === 'csv' || reading.format === 'tsv');
    this.#header.checked = reading?.header ?? false;
    this.#told.textContent = isEmpty ? '' : `${counted(rows.length, 'row')}, ${counted(columns.length, 'column')}`;
  }
}
