/**
 * The requests that ended last: how soon each had its first token, and how fast the rest came.
 * @import {EndedView} from '../protocol.js'
 */

import { element } from '../dom.js';
import { decodeRate, timeInWords } from './figures.js';

const HEADINGS = ['Request', 'First token', 'Tokens/s', 'Answer', 'Prompt', 'Of it shared', 'Ended by'];
const SHOWN = 12;

export class EndedTable {
  #body = element('tbody');
  #newest = '';

  constructor() {
    const head = element('tr', {}, ...HEADINGS.map((heading) => element('th', { scope: 'col' }, heading)));
    this.element = element(
      'div',
      { class: 'table-frame', role: 'region', 'aria-label': 'Requests that ended', tabIndex: 0 },
      element('table', {}, element('thead', {}, head), this.#body),
    );
    this.show([]);
  }

  /** @param {EndedView[]} ended */
  show(ended) {
    const newest = ended.at(-1)?.id ?? 'none';
    if (newest === this.#newest) return;
    this.#newest = newest;
    const lines = ended.slice(-SHOWN).reverse().map(line);
    const empty = element(
      'tr',
      {},
      element('td', { colSpan: HEADINGS.length, class: 'empty' }, 'No request has ended yet.'),
    );
    this.#body.replaceChildren(...(lines.length ? lines : [empty]));
  }
}

/** @param {EndedView} request */
function line(request) {
  const { id, label, first_token, output_tokens, prompt_tokens, cached_tokens, finish_reason } = request;
  const rate = decodeRate(request);
  const cells = [
    first_token === null ? '–' : timeInWords(first_token),
    rate === null ? '–' : rate.toFixed(1),
    `${output_tokens}`,
    `${prompt_tokens}`,
    `${cached_tokens}`,
  ];
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, label ?? `request ${id}`),
    ...cells.map((cell) => element('td', { class: 'number' }, cell)),
    element('td', {}, finish_reason),
  );
}
