/**
 * The batch as the browser keeps it: its settings, and its rows with what has come of them, written as they come.
 * @import {Outcome, Settings} from './answer.js'
 * @import {BatchRow} from './batch_run.js'
 * @import {Reading} from './table_text.js'
 * @import {Values} from './template.js'
 */

import { PageloomError } from '../errors.js';
import { own, saved } from '../saved.js';
import { wholeOf } from './kept_batch.js';

const ID = 'batch';
const LOCK = 'pageloom-batch';

/**
 * @typedef {object} KeptModel
 * @property {string} name
 * @property {'built-in' | {stored: string} | null} choice  What loads it again; null where nothing was kept of it.
 *
 * @typedef {object} Head
 * @property {Settings} settings
 * @property {Reading} reading
 * @property {string[]} columns
 * @property {number} count  How many rows there are.
 * @property {KeptModel} model  What the rows were last run with.
 *
 * @typedef {object} KeptRow
 * @property {number} index
 * @property {Values} values
 * @property {Outcome | null} outcome
 */

export class SavedRun {
  #onProblem;
  /** @type {Head | null} */
  #head = null;
  /** @type {Set<BatchRow>} */
  #rows = new Set();
  #isWriting = false;
  /** @type {Promise<boolean>} Whether this tab may write. */
  #owned;

  /** @param {(words: string) => void} onProblem  Told what is damaged of what was kept, and why nothing more is kept. */
  constructor(onProblem) {
    this.#onProblem = onProblem;
    this.#owned = own(LOCK);
  }

  /**
   * What was kept and is whole, or null.
   * @returns {Promise<{head: Head, rows: KeptRow[]} | null>}
   */
  async read() {
    try {
      if (!(await this.#owned)) {
        this.#onProblem('Another tab of this page keeps its batch; this tab’s is gone once it closes.');
        return null;
      }
      const kept = await saved.get('runs', ID);
      if (!kept) return null;
      const { head, rows, problem } = wholeOf(kept, await saved.all('rows', rowsFrom(0)));
      if (problem) this.#onProblem(problem);
      return head && { head, rows };
    } catch (error) {
      this.#fail(error);
      return null;
    }
  }

  /** @param {Head} head */
  keepHead(head) {
    this.#head = head;
    this.#write();
  }

  /** @param {BatchRow} row */
  keepRow(row) {
    this.#rows.add(row);
    this.#write();
  }

  /** Writes what has changed, and what changes meanwhile after that. */
  async #write() {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      while ((await this.#owned) && (this.#head || this.#rows.size > 0)) {
        const [head, rows] = [this.#head, [...this.#rows]];
        this.#head = null;
        this.#rows.clear();
        await saved.change(['runs', 'rows'], (objects) => {
          for (const { index, values, outcome } of rows) objects('rows').put({ run: ID, index, values, outcome });
          if (!head) return;
          objects('runs').put({ id: ID, ...head });
          objects('rows').delete(rowsFrom(head.count));
        });
      }
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#isWriting = false;
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#owned = Promise.resolve(false);
    const reason = error instanceof PageloomError ? error.message : String(error);
    this.#onProblem(`This batch is no longer kept: ${reason}. Export what you need before you close the page.`);
  }
}

/** @param {number} index */
function rowsFrom(index) {
  return IDBKeyRange.bound([ID, index], [ID, Number.POSITIVE_INFINITY]);
}
