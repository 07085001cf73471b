/**
 * The rows of a batch, what has come of each, and the ones that run now. Knows the engine, not the page.
 * @import {Pageloom} from '../engine.js'
 * @import {JobFields} from '../protocol.js'
 * @import {EndState, Outcome} from './answer.js'
 * @import {Table} from './table_text.js'
 * @import {Values} from './template.js'
 */

import { outcomeOf } from './answer.js';

/**
 * @typedef {object} BatchRow
 * @property {number} index  Position among the rows, from 0.
 * @property {Values} values
 * @property {Outcome | null} outcome
 * @property {boolean} outdated  Whether its outcome answers something else than what would be asked now.
 * @property {Live | null} live  While it runs.
 *
 * @typedef {object} Live
 * @property {JobFields} job
 * @property {string} text
 * @property {number} tokens
 * @property {AbortController} abort
 *
 * @typedef {EndState | 'not run' | 'outdated' | 'waiting' | 'running'} State
 *
 * @typedef {object} RunListener
 * @property {(row: BatchRow) => void} onProgress  A row has begun, or has more text.
 * @property {(row: BatchRow) => void} onChange  A row's values or outcome are other ones: worth keeping.
 */

const ANSWERED = ['done', 'cut off'];

/**
 * @param {BatchRow} row
 * @returns {State}
 */
export function stateOf({ live, outcome, outdated }) {
  if (live) return live.tokens > 0 ? 'running' : 'waiting';
  if (!outcome) return 'not run';
  return outdated && ANSWERED.includes(outcome.state) ? 'outdated' : outcome.state;
}

/** @param {BatchRow} row */
export const needsRun = (row) => ['not run', 'outdated', 'stopped', 'failed'].includes(stateOf(row));

export class BatchRun {
  /** @type {string[]} */
  columns = [];
  /** @type {BatchRow[]} */
  rows = [];
  #listener;
  /** @type {((values: Values) => JobFields) | null} */
  #jobFor = null;

  /** @param {RunListener} listener */
  constructor(listener) {
    this.#listener = listener;
  }

  get isRunning() {
    return this.rows.some(({ live }) => live);
  }

  /** @param {...State} states */
  inState(...states) {
    return this.rows.filter((row) => states.includes(stateOf(row)));
  }

  get counts() {
    return {
      total: this.rows.length,
      done: this.inState('done', 'cut off').length,
      stopped: this.inState('stopped').length,
      failed: this.inState('failed').length,
    };
  }

  /**
   * Takes other rows. A row that stands where it stood, with the values that it had, keeps what has come of it.
   * @param {Table} table
   */
  setTable({ columns, rows }) {
    const before = this.rows;
    this.columns = columns;
    this.rows = rows.map((values, index) => {
      const old = before[index];
      if (old && JSON.stringify(old.values) === JSON.stringify(values)) return old;
      return { index, values, outcome: null, outdated: false, live: null };
    });
    const kept = new Set(this.rows);
    this.stop(before.filter((row) => !kept.has(row)));
    for (const row of this.rows) if (before[row.index] !== row) this.#listener.onChange(row);
  }

  /**
   * Gives the only column another name.
   * @param {string} name
   */
  renameOnlyColumn(name) {
    const [old = ''] = this.columns;
    this.columns = [name];
    for (const row of this.rows) {
      row.values = { [name]: row.values[old] ?? '' };
      this.#listener.onChange(row);
    }
  }

  /**
   * @param {BatchRow} row
   * @param {string} column
   * @param {string} value
   */
  edit(row, column, value) {
    row.values = { ...row.values, [column]: value };
    this.#compare(row);
    this.#listener.onChange(row);
  }

  /**
   * Takes outcomes that were kept.
   * @param {(Outcome | null)[]} outcomes  By the rows' indices.
   */
  restore(outcomes) {
    for (const row of this.rows) {
      row.outcome = outcomes[row.index] ?? null;
      this.#listener.onChange(row);
    }
  }

  clearOutcomes() {
    this.stop();
    for (const row of this.rows) {
      row.outcome = row.live = null;
      this.#listener.onChange(row);
    }
  }

  /**
   * Says what would be asked of a row now; outcomes that answer something else are outdated from here on.
   * @param {((values: Values) => JobFields) | null} jobFor  Null while nothing can be asked; outcomes then stand.
   */
  askWith(jobFor) {
    this.#jobFor = jobFor;
    for (const row of this.rows) this.#compare(row);
  }

  /** @param {BatchRow} row */
  #compare(row) {
    const asked = row.outcome && JSON.stringify(row.outcome.job);
    row.outdated = asked !== null && this.#jobFor !== null && asked !== JSON.stringify(this.#jobFor(row.values));
  }

  /**
   * Runs rows, all at once; those that run already go on as they are. Resolves once all of them have ended.
   * @param {Pageloom} engine
   * @param {BatchRow[]} rows
   */
  async start(engine, rows) {
    const jobFor = this.#jobFor;
    if (!jobFor) return;
    const started = rows.filter(({ live }) => !live).map((row) => ({ row, live: begin(row, jobFor(row.values)) }));
    /**
     * Runs `change` where the row is still there and waits for this answer.
     * @param {number} index
     * @param {(row: BatchRow, live: Live) => void} change
     */
    const at = (index, change) => {
      const { row, live } = /** @type {typeof started[number]} */ (started[index]);
      if (row.live === live && this.rows[row.index] === row) change(row, live);
    };
    for (const { row } of started) this.#listener.onProgress(row);
    await engine.batch(
      started.map(({ row, live }) => ({ ...live.job, label: `Row ${row.index + 1}`, signal: live.abort.signal })),
      {
        onText: (index, text) =>
          at(index, (row, live) => {
            live.text += text;
            live.tokens += 1;
            this.#listener.onProgress(row);
          }),
        onRow: (result) =>
          at(result.index, (row, live) => {
            row.live = null;
            // A row that its engine left behind has not failed: another engine can run it.
            if (!('error' in result) || result.error.code !== 'engine_closed') {
              row.outcome = outcomeOf(live.job, result);
              this.#compare(row);
            }
            this.#listener.onChange(row);
          }),
      },
    );
  }

  /**
   * Stops rows; those that do not run are left as they are.
   * @param {BatchRow[]} rows
   */
  stop(rows = this.rows) {
    for (const { live } of rows) live?.abort.abort();
  }
}

/**
 * @param {BatchRow} row
 * @param {JobFields} job
 * @returns {Live}
 */
function begin(row, job) {
  row.live = { job, text: '', tokens: 0, abort: new AbortController() };
  return row.live;
}
