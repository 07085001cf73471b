/**
 * The table of a batch: a line a row, with its state, its text as it comes, and a button that stops it.
 * @import {RowResult} from '../engine.js'
 * @import {ResultRow} from './export.js'
 * @import {Row} from './rows.js'
 */

import { button, element } from '../dom.js';

/** @typedef {'waiting' | 'running' | 'done' | 'cut off' | 'stopped' | 'failed'} State */

/** @type {Record<import('../protocol.js').JobResult['finish_reason'], State>} */
const STATE_OF = { stop: 'done', length: 'cut off', abort: 'stopped' };

/**
 * @typedef {object} Line
 * @property {ResultRow} result
 * @property {boolean} ended
 * @property {HTMLElement} state
 * @property {HTMLElement} text
 * @property {HTMLElement} tokens
 * @property {HTMLButtonElement} stop
 */

export class ResultTable {
  /** @type {string[]} */
  columns = [];
  #head = element('thead');
  #body = element('tbody');
  /** @type {Line[]} */
  #lines = [];
  #table = element('table', { class: 'results' }, this.#head, this.#body);
  element = element(
    'div',
    { class: 'table-frame', role: 'region', 'aria-label': 'Results', tabIndex: 0 },
    this.#table,
    element('p', { class: 'empty' }, 'Answers stream in here, all rows at once.'),
  );

  get isRunning() {
    return this.#lines.some(({ ended }) => !ended);
  }

  get counts() {
    /** @param {State[]} states */
    const count = (...states) =>
      this.#lines.filter(({ result }) => states.some((state) => state === result.state)).length;
    return {
      total: this.#lines.length,
      done: count('done', 'cut off'),
      stopped: count('stopped'),
      failed: count('failed'),
    };
  }

  /** @returns {ResultRow[]} */
  get results() {
    return this.#lines.map(({ result }) => result);
  }

  /**
   * Clears the table for a new run. Returns a signal a row, fired by the row's own button.
   * @param {string[]} columns
   * @param {Row[]} rows
   * @param {string[]} prompts
   * @returns {AbortSignal[]}
   */
  begin(columns, rows, prompts) {
    this.columns = columns;
    this.#table.style.setProperty('--inputs', String(columns.length));
    this.#head.replaceChildren(
      element(
        'tr',
        {},
        heading('#', 'index'),
        ...columns.map((column) => heading(column, 'input')),
        heading('Output', 'output'),
        heading('State', 'state-cell'),
        heading('Tokens', 'tokens'),
        heading('', 'stop'),
      ),
    );
    this.#body.replaceChildren();
    /** @type {AbortSignal[]} */
    const signals = [];
    this.#lines = rows.map((row, index) => {
      const abort = new AbortController();
      signals.push(abort.signal);
      return this.#addLine(index, row, prompts[index] ?? '', () => abort.abort());
    });
    return signals;
  }

  /**
   * @param {number} index
   * @param {string} text
   */
  addText(index, text) {
    const line = /** @type {Line} */ (this.#lines[index]);
    line.result.text += text;
    line.text.append(text);
    if (line.result.state === 'waiting') setState(line, 'running');
  }

  /** @param {RowResult} row */
  finish(row) {
    const line = /** @type {Line} */ (this.#lines[row.index]);
    line.ended = true;
    line.stop.disabled = true;
    if ('error' in row) {
      line.result.error = row.error.message;
      line.text.append(element('span', { class: 'row-error' }, row.error.message));
      setState(line, 'failed');
      return;
    }
    line.result.text = row.text;
    line.result.completionTokens = row.usage.completion_tokens;
    line.text.textContent = row.text;
    line.tokens.textContent = String(row.usage.completion_tokens);
    setState(line, STATE_OF[row.finish_reason]);
  }

  /**
   * @param {number} index
   * @param {Row} row
   * @param {string} prompt
   * @param {() => void} onStop
   * @returns {Line}
   */
  #addLine(index, row, prompt, onStop) {
    const number = String(index + 1);
    /** @type {Line} */
    const line = {
      result: { input: row, prompt, state: 'waiting', text: '', error: '', completionTokens: null },
      ended: false,
      state: element('span', { class: 'state', 'data-state': 'waiting' }, 'waiting'),
      text: element('td', { class: 'output' }),
      tokens: element('td', { class: 'number tokens' }),
      stop: button('Stop', onStop, { class: 'quiet', 'aria-label': `Stop row ${number}` }),
    };
    this.#body.append(
      element(
        'tr',
        {},
        element('th', { scope: 'row', class: 'number index' }, number),
        ...this.columns.map((column) => element('td', { class: 'input' }, row[column] ?? '')),
        line.text,
        element('td', { class: 'state-cell' }, line.state),
        line.tokens,
        element('td', { class: 'stop' }, line.stop),
      ),
    );
    return line;
  }
}

/**
 * @param {string} text
 * @param {string} kind
 */
function heading(text, kind) {
  return element('th', { scope: 'col', class: kind }, text);
}

/**
 * @param {Line} line
 * @param {State} state
 */
function setState(line, state) {
  line.result.state = state;
  line.state.dataset.state = state;
  line.state.textContent = state;
}
