/**
 * The requests that are live, in a table; the one that is pointed at, or has the focus, stands out in the picture.
 * @import {BlockView, EngineSnapshot, RequestView} from '../protocol.js'
 */

import { element } from '../dom.js';
import { colourOf } from './paint.js';

const HEADINGS = ['Request', 'State', 'Tokens', 'Pages'];

export class RequestTable {
  #body = element('tbody');
  #onMark;
  /** @type {Map<string, HTMLTableRowElement>} */
  #rows = new Map();

  /** @param {(owner: string | null) => void} onMark */
  constructor(onMark) {
    this.#onMark = onMark;
    const head = element('tr', {}, ...HEADINGS.map((heading) => element('th', { scope: 'col' }, heading)));
    this.element = element(
      'div',
      { class: 'table-frame', role: 'region', 'aria-label': 'Live requests', tabIndex: 0 },
      element('table', {}, element('thead', {}, head), this.#body),
    );
    this.show(null);
  }

  /** @param {EngineSnapshot | null} snapshot */
  show(snapshot) {
    const live = snapshot ? [...snapshot.running, ...snapshot.waiting] : [];
    const blocks = new Map(snapshot?.blocks.map((block) => [block.id, block]));
    const rows = new Map(live.map((request) => [request.id, this.#rows.get(request.id) ?? this.#newRow(request)]));
    // Rows stay in place: one that has the focus would lose it.
    for (const [id, row] of this.#rows) {
      if (rows.has(id)) continue;
      if (row.contains(document.activeElement)) this.element.focus();
      row.remove();
      this.#onMark(null);
    }
    this.#rows = rows;
    for (const request of live) showCells(/** @type {HTMLTableRowElement} */ (rows.get(request.id)), request, blocks);
    for (const row of rows.values()) if (!row.isConnected) this.#body.append(row);
    const empty = this.#body.querySelector('.empty')?.parentElement;
    if (live.length > 0) empty?.remove();
    else if (!empty) {
      this.#body.append(
        element('tr', {}, element('td', { colSpan: HEADINGS.length, class: 'empty' }, 'No request is live.')),
      );
    }
  }

  /** @param {RequestView} request */
  #newRow({ id, arrival, label }) {
    const swatch = element('span', { class: 'swatch', 'aria-hidden': true });
    swatch.style.backgroundColor = colourOf(arrival);
    const words = label ?? `request ${id}`;
    const name = element('button', { type: 'button', class: 'request-name', title: words }, words);
    name.addEventListener('focus', () => this.#onMark(id));
    name.addEventListener('blur', () => this.#onMark(null));
    const row = element('tr', {}, element('th', { scope: 'row' }, element('div', { class: 'request' }, swatch, name)));
    row.append(...HEADINGS.slice(1).map((_, column) => element('td', column > 0 ? { class: 'number' } : {})));
    row.addEventListener('pointerenter', () => this.#onMark(id));
    row.addEventListener('pointerleave', () => this.#onMark(null));
    return row;
  }
}

/**
 * @param {HTMLTableRowElement} row
 * @param {RequestView} request
 * @param {Map<number, BlockView>} blocks
 */
function showCells(row, { state, num_known, block_ids }, blocks) {
  const shared = block_ids.filter((id) => (blocks.get(id)?.owners.length ?? 0) > 1).length;
  const pages = shared ? `${block_ids.length}, ${shared} shared` : `${block_ids.length}`;
  for (const [column, value] of [state, `${num_known}`, pages].entries()) {
    const cell = row.cells[column + 1];
    if (cell && cell.textContent !== value) cell.textContent = value;
  }
}
