/**
 * The batch view: a template, rows, and a table in which all answers stream at once.
 * @import {Pageloom} from '../engine.js'
 * @import {Table} from './rows.js'
 */

import { acceptDrop, button, download, element, field } from '../dom.js';
import { batchInWords, counted } from '../words.js';
import { toCsv, toJson } from './export.js';
import { ResultTable } from './result_table.js';
import { fill, parseRows } from './rows.js';

const FIRST_TEMPLATE = 'What is the capital of {country}?';
const FIRST_ROWS = 'France\nJapan\nKenya\nPeru\nNorway\nEgypt\nCanada\nIndia';

export class BatchView {
  /** @type {Pageloom | null} */
  #engine = null;
  #stop = new AbortController();
  #template = element('textarea', { rows: 3, value: FIRST_TEMPLATE, spellcheck: false });
  #rows = element('textarea', { rows: 8, value: FIRST_ROWS, spellcheck: false });
  #maxTokens = element('input', { type: 'number', min: 1, value: '24', required: true });
  #temperature = element('input', { type: 'number', min: 0, max: 2, step: 0.1, value: '0', required: true });
  #problem = element('p', { class: 'problem', role: 'status' });
  #run = button('Run', () => this.#start(), { class: 'primary' });
  #stopAll = button('Stop all', () => this.#stop.abort(), { disabled: true });
  #csv = button('Export CSV', () => this.#export('csv'), { disabled: true });
  #json = button('Export JSON', () => this.#export('json'), { disabled: true });
  #summary = element('p', { class: 'summary', role: 'status' });
  #table = new ResultTable();
  /** @type {Table} */
  #input = { columns: [], rows: [] };

  /** @param {HTMLElement} root */
  constructor(root) {
    const picker = element('input', { type: 'file', accept: '.csv,.txt,text/csv,text/plain' });
    picker.addEventListener('change', () => this.#take(picker.files?.[0]));
    for (const input of [this.#template, this.#rows]) input.addEventListener('input', () => this.#check());
    acceptDrop(this.#rows, (file) => this.#take(file));
    const form = element(
      'form',
      { class: 'batch-form', onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      field('Template', this.#template, 'One prompt a row; {name} is replaced by the row’s text or CSV column.'),
      field('Rows', this.#rows, 'One a line, or CSV whose first line names the columns. A file may be dropped here.'),
      field('Rows from a file', picker),
      element('div', { class: 'pair' }, field('Most tokens', this.#maxTokens), field('Temperature', this.#temperature)),
      this.#problem,
      this.#run,
    );
    const results = element(
      'div',
      { class: 'batch-results' },
      element('div', { class: 'toolbar' }, this.#summary, this.#stopAll, this.#csv, this.#json),
      this.#table.element,
    );
    root.append(element('div', { class: 'batch' }, form, results));
    this.#check();
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    this.#check();
  }

  /** @param {File | undefined} file */
  async #take(file) {
    if (!file) return;
    this.#rows.value = await file.text();
    this.#check();
  }

  /** Reads the form again and says what keeps it from running. */
  #check() {
    try {
      this.#input = parseRows(this.#rows.value, this.#template.value);
      this.#problem.textContent = this.#engine ? '' : 'Load a model to run these rows.';
    } catch (error) {
      this.#input = { columns: [], rows: [] };
      this.#problem.textContent = /** @type {Error} */ (error).message;
    }
    const count = this.#input.rows.length;
    this.#run.textContent = `Run ${counted(count, 'row')}`;
    this.#run.disabled = !this.#engine || count === 0 || this.#table.isRunning;
  }

  async #start() {
    const engine = this.#engine;
    if (!engine || !this.#run.form?.reportValidity()) return;
    const { columns, rows } = this.#input;
    this.#stop = new AbortController();
    const prompts = rows.map((row) => fill(this.#template.value, row));
    const signals = this.#table.begin(columns, rows, prompts);
    this.#showProgress();
    const settings = { max_tokens: this.#maxTokens.valueAsNumber, temperature: this.#temperature.valueAsNumber };
    await engine.batch(
      prompts.map((prompt, index) => ({
        prompt,
        label: `Row ${index + 1}`,
        ...settings,
        ...(signals[index] && { signal: signals[index] }),
      })),
      {
        signal: this.#stop.signal,
        onText: (index, text) => this.#table.addText(index, text),
        onRow: (result) => {
          this.#table.finish(result);
          this.#showProgress();
        },
      },
    );
  }

  #showProgress() {
    const running = this.#table.isRunning;
    this.#summary.textContent = batchInWords(this.#table.counts);
    this.#stopAll.disabled = !running;
    this.#csv.disabled = this.#json.disabled = running;
    this.#check();
  }

  /** @param {'csv' | 'json'} kind */
  #export(kind) {
    const results = this.#table.results;
    if (kind === 'csv') download('pageloom.csv', 'text/csv', toCsv(this.#table.columns, results));
    else download('pageloom.json', 'application/json', toJson(results));
  }
}
