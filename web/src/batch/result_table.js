/**
 * The table of a batch: a line a row, with its state, its text as it comes, and a button that stops it.
 * @import {RowResult} from '../engine.js'
 * @import {ResultRow} from './export.js'
 * @import {Row} from './rows.js'
 */

import { button, element } from '../dom.js';

/** @typedef {'queued' | 'running' | 'done' | 'cut off' | 'stopped' | 'failed'} State */

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
  element = element(
    'div',
    { class: 'table-frame', role: 'region', 'aria-label': 'Results', tabIndex: 0 },
    element('table', { class: 'results' }, this.#head, this.#body),
    element('p', { class: 'empty' }, 'Answers stream in here, all rows at once.'),
  );

  get isRunning() {
    return this.#lines.some(({ ended }) => !ended);
  }

  get counts() {
    const ended = this.#lines.filter((line) => line.ended).length;
    const failed = this.#lines.filter(({ result }) => result.state === 'failed').length;
    return { total: this.#lines.length, ended, failed };
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
    const headings = ['#', ...columns, 'Output', 'State', 'Tokens', ''];
    this.#head.replaceChildren(
      element('tr', {}, ...headings.map((heading) => element('th', { scope: 'col' }, heading))),
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
    if (line.result.state === 'queued') setState(line, 'running');
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
      result: { input: row, prompt, state: 'queued', text: '', error: '', completionTokens: null },
      ended: false,
      state: element('span', { class: 'state', 'data-state': 'queued' }, 'queued'),
      text: element('div', { class: 'output' }),
      tokens: element('td', { class: 'number' }),
      stop: button('Stop', onStop, { class: 'quiet', 'aria-label': `Stop row ${number}` }),
    };
    this.#body.append(
      element(
        'tr',
        {},
        element('th', { scope: 'row', class: 'number' }, number),
        ...this.columns.map((column) => element('td', {}, element('div', { class: 'input' }, row[column] ?? ''))),
        element('td', {}, line.text),
        element('td', {}, line.state),
        line.tokens,
        element('td', {}, line.stop),
      ),
    );
    return line;
  }
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
