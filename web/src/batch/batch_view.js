/**
 * The batch view: rows, what is asked of each, and a table in which all answers stream at once. What was asked and
 * answered is kept, and is there again when the page is.
 * @import {Pageloom} from '../engine.js'
 * @import {Model} from '../models.js'
 * @import {Outcome, Settings} from './answer.js'
 * @import {BatchRow} from './batch_run.js'
 * @import {Example} from './examples.js'
 * @import {ExportKind} from './run_bar.js'
 * @import {KeptModel} from './saved_run.js'
 * @import {Reading, Table} from './table_text.js'
 */

import { acceptDrop, button, download, element } from '../dom.js';
import { BUILT_IN_PATH } from '../models.js';
import { counted } from '../words.js';
import { FIRST_SETTINGS, jobOf } from './answer.js';
import { BatchForm } from './batch_form.js';
import { BatchResults } from './batch_results.js';
import { BatchRun, needsRun } from './batch_run.js';
import { exampleCards } from './examples.js';
import { resultOf, toCsv, toJson, toJsonLines } from './export.js';
import { SavedRun } from './saved_run.js';

/**
 * @typedef {object} Content  All that a batch is.
 * @property {Settings} settings
 * @property {Reading} reading
 * @property {Table} table
 * @property {(Outcome | null)[]} outcomes  By the rows' indices.
 */

/** @type {KeptModel} */
const BUILT_IN = { name: 'SmolLM2 135M', choice: 'built-in' };
/** @type {Content} */
const NOTHING = {
  settings: FIRST_SETTINGS,
  reading: { format: 'list', header: false },
  table: { columns: [], rows: [] },
  outcomes: [],
};

export class BatchView {
  #root;
  #load;
  /** @type {Pageloom | null} */
  #engine = null;
  /** What loads where no model is, to run these rows. */
  #model = BUILT_IN;
  /** @type {BatchRow[]} Rows to run once a model is loaded. */
  #waiting = [];
  #settings = FIRST_SETTINGS;
  #reading = NOTHING.reading;
  #problem = '';
  #notKept = element('p', { class: 'problem', role: 'alert' });
  #notice = element('p', { class: 'went', role: 'status', hidden: true });
  #saved = new SavedRun((words) => {
    this.#notKept.textContent = words;
  });
  #run = new BatchRun({
    onProgress: (row) => this.#results.showProgress(row),
    onChange: (row) => {
      this.#saved.keepRow(row);
      this.#results.showChange(row);
    },
  });
  #form = new BatchForm({
    onTable: (table, reading) => this.#takeTable(table, reading),
    onSettings: () => this.#check(),
    onRun: () => this.#runAll(),
  });
  #results = new BatchResults(
    this.#run,
    FIRST_SETTINGS,
    () => this.#readiness(),
    {
      onRun: () => this.#runAll(),
      onStop: () => this.#run.stop(),
      onRetry: () => this.#start(this.#run.inState('failed')),
      onExport: (kind) => this.#export(kind),
      onClear: (what) => this.#clear(what),
      onEdit: (row, column, value) => this.#edit(row, column, value),
      onAct: (row) => (row.live ? this.#run.stop([row]) : this.#start([row])),
    },
    [this.#notKept, this.#notice],
    exampleCards((example) => this.#takeExample(example)),
  );

  /**
   * @param {HTMLElement} root
   * @param {(model: Model) => void} load  Loads a model, where the user sees it.
   */
  constructor(root, load) {
    this.#root = root;
    this.#load = load;
    root.append(element('div', { class: 'batch' }, this.#form.element, this.#results.element));
    acceptDrop(root, (file) => this.#form.takeFile(file));
    document.addEventListener('paste', (event) => this.#onPaste(event));
    root.inert = true; // what is typed before the kept batch has been read would be lost to it
    this.#restore();
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    if (engine) {
      const waiting = this.#waiting.filter((row) => this.#run.rows.includes(row));
      this.#waiting = [];
      this.#start(waiting);
    }
    this.#results.rearrange();
  }

  async #restore() {
    const kept = await this.#saved.read();
    this.#root.inert = false;
    if (!kept) return this.#show(NOTHING);
    const { settings, reading, columns, model } = kept.head;
    this.#model = model;
    const table = { columns, rows: kept.rows.map(({ values }) => values) };
    return this.#show({ settings, reading, table, outcomes: kept.rows.map(({ outcome }) => outcome) });
  }

  /** @returns {Content} */
  #content() {
    const { columns, rows } = this.#run;
    const table = { columns, rows: rows.map(({ values }) => values) };
    const outcomes = rows.map(({ outcome }) => outcome);
    return { settings: this.#settings, reading: this.#reading, table, outcomes };
  }

  /** @param {Content} content */
  #show({ settings, reading, table, outcomes }) {
    this.#form.showSettings(settings);
    this.#form.showTable(table, reading);
    this.#reading = reading;
    this.#run.setTable(table);
    this.#run.restore(outcomes);
    this.#check();
  }

  /**
   * @param {Table} table
   * @param {Reading} reading
   */
  #takeTable(table, reading) {
    const before = this.#content();
    this.#reading = reading;
    this.#run.setTable(table);
    this.#check();
    this.#offerUndo(before, 'Rows were replaced');
  }

  /** Reads the form: what is asked now, and what keeps it from being asked. */
  #check() {
    this.#settings = this.#form.settings;
    const { columns } = this.#run;
    const { onlyColumn } = this.#form;
    const isList = this.#reading.format === 'list' && columns.length === 1;
    if (isList && columns[0] !== onlyColumn) this.#run.renameOnlyColumn(onlyColumn);
    this.#problem = this.#form.check(this.#run.columns);
    const settings = this.#settings;
    this.#run.askWith(this.#problem ? null : (values) => jobOf(settings, values));
    this.#keepHead();
    this.#results.show(settings);
  }

  #keepHead() {
    this.#saved.keepHead({
      settings: this.#settings,
      reading: this.#reading,
      columns: this.#run.columns,
      count: this.#run.rows.length,
      model: this.#model,
    });
  }

  /**
   * @param {BatchRow} row
   * @param {string} column
   * @param {string} value
   */
  #edit(row, column, value) {
    this.#run.edit(row, column, value);
    this.#form.showTable(this.#content().table, this.#reading);
    this.#keepHead();
  }

  #readiness() {
    const { rows, isRunning } = this.#run;
    const some = rows.filter(needsRun).length;
    const why = this.#why();
    const isBusy = isRunning && some === 0;
    const what = some > 0 || rows.length === 0 ? counted(some, 'row') : `${counted(rows.length, 'row')} again`;
    const label =
      this.#engine || !this.#model.choice ? `Run ${what}` : `Load ${shortName(this.#model)} and run ${what}`;
    return {
      label: isBusy ? 'Running' : label,
      canRun: why === '' && rows.length > 0 && !isBusy,
      why,
      note: this.#problem ? '' : why,
    };
  }

  /** Why no row can run, in words; '' where one can. */
  #why() {
    if (this.#problem) return this.#problem;
    if (this.#engine || this.#model.choice) return '';
    return `No model is loaded. ${shortName(this.#model)} ran these rows and was not kept in this browser: open it in Models.`;
  }

  #runAll() {
    if (!this.#readiness().canRun) return;
    const some = this.#run.rows.filter(needsRun);
    this.#start(some.length > 0 ? some : this.#run.rows);
  }

  /** @param {BatchRow[]} rows */
  #start(rows) {
    if (rows.length === 0 || this.#why()) return;
    this.#notice.hidden = true;
    if (this.#engine) {
      this.#model = modelOf(this.#engine);
      this.#keepHead();
      this.#run.start(this.#engine, rows);
      this.#results.rearrange();
    } else if (this.#model.choice) {
      this.#waiting = rows;
      this.#load(this.#model.choice);
    }
  }

  /** @param {ExportKind} kind */
  #export(kind) {
    const results = this.#run.rows.map(resultOf);
    if (kind === 'CSV') download('pageloom.csv', 'text/csv', toCsv(this.#run.columns, results));
    else if (kind === 'JSON') download('pageloom.json', 'application/json', toJson(results));
    else download('pageloom.jsonl', 'application/jsonl', toJsonLines(results));
  }

  /** @param {'answers' | 'everything'} what */
  #clear(what) {
    const before = this.#content();
    if (what === 'everything') this.#show(NOTHING);
    else this.#run.clearOutcomes();
    this.#results.rearrange();
    this.#offerUndo(before, 'Cleared');
  }

  /**
   * Lets the user go back, where answers were lost.
   * @param {Content} before
   * @param {string} words
   */
  #offerUndo(before, words) {
    const had = before.outcomes.filter((outcome) => outcome !== null).length;
    const has = this.#run.rows.filter(({ outcome }) => outcome !== null).length;
    if (has >= had) return;
    const undo = button('Undo', () => {
      this.#notice.hidden = true;
      this.#show(before);
    });
    this.#notice.replaceChildren(`${words}; ${counted(had - has, 'answer')} went.`, undo);
    this.#notice.hidden = false;
  }

  /** @param {Example} example */
  #takeExample({ settings, text }) {
    this.#form.showSettings(settings);
    this.#form.takeText(text);
  }

  /**
   * Takes rows that are pasted while no box has the focus.
   * @param {ClipboardEvent} event
   */
  #onPaste(event) {
    const text = event.clipboardData?.getData('text/plain');
    const isInBox = event.target instanceof Element && event.target.closest('input, textarea, [contenteditable]');
    if (!text || isInBox || this.#root.hidden) return;
    event.preventDefault();
    this.#form.takeText(text);
  }
}

/**
 * @param {Pageloom} engine
 * @returns {KeptModel}
 */
function modelOf({ model: { name, stored } }) {
  const isBuiltIn = BUILT_IN_PATH.endsWith(`/${name}`);
  return { name, choice: stored ? { stored } : isBuiltIn ? 'built-in' : null };
}

/** @param {KeptModel} model */
function shortName({ name }) {
  return name.replace(/\.gguf$/i, '');
}
