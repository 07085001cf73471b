/**
 * The table of rows. All rows have one height, so that only those in sight are in the document, and nothing moves while
 * answers come. The arrow keys move the selected row; the table itself keeps the focus.
 * @import {BatchRow} from './batch_run.js'
 * @import {Column} from './columns.js'
 */

import { button, element } from '../dom.js';
import { RowLine } from './row_line.js';

/** Rows above and below those in sight. */
const MARGIN = 6;
/** How wide the last column is, which has a button a row. */
const BUTTON_REM = 2.5;

/**
 * @typedef {object} GridListener
 * @property {(row: BatchRow) => void} onSelect
 * @property {() => void} onOpen  Enter on the selected row.
 * @property {(title: string) => void} onSort
 * @property {(row: BatchRow) => void} onAct  The button of a row: run it, or stop it.
 */

export class RowGrid {
  #listener;
  #head = element('div', { role: 'row', class: 'grid-head', 'aria-rowindex': 1 });
  #none = element('p', { class: 'empty', hidden: true }, 'No row is like that.');
  #body = element('div', { role: 'rowgroup', class: 'grid-body' });
  #scroller = element(
    'div',
    { class: 'row-grid', role: 'grid', tabIndex: 0, 'aria-label': 'Rows and answers' },
    element('div', { role: 'rowgroup', class: 'grid-top' }, this.#head),
    this.#body,
  );
  element = element('div', { class: 'grid-frame' }, this.#scroller, this.#none);
  /** @type {Column[]} */
  #columns = [];
  /** @type {BatchRow[]} */
  #rows = [];
  /** @type {Map<BatchRow, RowLine>} */
  #lines = new Map();
  /** @type {BatchRow | null} */
  #selected = null;
  #frame = 0;

  /** @param {GridListener} listener */
  constructor(listener) {
    this.#listener = listener;
    this.#scroller.addEventListener('scroll', () => this.refresh(), { passive: true });
    this.#scroller.addEventListener('keydown', (event) => this.#onKey(event));
    new ResizeObserver(() => this.refresh()).observe(this.#scroller);
  }

  get selected() {
    return this.#selected;
  }

  focus() {
    this.#scroller.focus();
  }

  /**
   * @param {Column[]} columns
   * @param {{title: string, descending: boolean} | null} sorting
   */
  setColumns(columns, sorting) {
    this.#columns = columns;
    const tracks = columns.map(({ rem, grow }) => (grow ? `minmax(${rem}rem, ${grow}fr)` : `${rem}rem`));
    this.#scroller.style.setProperty('--tracks', [...tracks, `${BUTTON_REM}rem`].join(' '));
    this.#scroller.style.setProperty('--least', `${columns.reduce((sum, { rem }) => sum + rem, BUTTON_REM)}rem`);
    this.#scroller.setAttribute('aria-colcount', String(columns.length + 1));
    this.#head.replaceChildren(
      ...columns.map(({ title, kind }) => {
        const order = sorting?.title === title ? (sorting.descending ? 'descending' : 'ascending') : 'none';
        const sort = button(title, () => this.#listener.onSort(title), { tabIndex: -1, title: `Sort by ${title}` });
        return element('div', { role: 'columnheader', class: kind, 'aria-sort': order }, sort);
      }),
      element('div', { role: 'columnheader' }, element('span', { class: 'visually-hidden' }, 'Run or stop')),
    );
    for (const line of this.#lines.values()) line.element.remove();
    this.#lines.clear();
    this.refresh();
  }

  /**
   * @param {BatchRow[]} rows  In the order in which they show.
   * @param {number} total  With those that do not: the table keeps the height that they need.
   */
  setRows(rows, total) {
    this.#rows = rows;
    this.#none.hidden = rows.length > 0;
    this.#scroller.style.setProperty('--count', String(total));
    this.#scroller.setAttribute('aria-rowcount', String(rows.length + 1));
    this.refresh();
  }

  /** @param {BatchRow | null} row */
  select(row) {
    this.#selected = row;
    this.refresh();
  }

  /** Draws what is in sight as it now is, with the next frame. */
  refresh() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  get #rowHeight() {
    return Number.parseFloat(getComputedStyle(this.#scroller).getPropertyValue('--row-height'));
  }

  #draw() {
    const height = this.#rowHeight;
    const { scrollTop, clientHeight } = this.#scroller;
    this.#body.style.height = `${this.#rows.length * height}px`;
    const first = Math.max(0, Math.floor(scrollTop / height) - MARGIN);
    const last = clientHeight === 0 ? 0 : Math.ceil((scrollTop + clientHeight) / height) + MARGIN;
    const shown = this.#rows.slice(first, last);
    const inSight = new Set(shown);
    for (const [row, line] of this.#lines) {
      if (inSight.has(row)) continue;
      line.element.remove();
      this.#lines.delete(row);
    }
    for (const [offset, row] of shown.entries()) {
      const line = this.#lines.get(row) ?? this.#addLine(row);
      line.place(first + offset, height);
      line.show(row === this.#selected);
    }
    const active = this.#selected && this.#lines.get(this.#selected)?.element.id;
    if (active) this.#scroller.setAttribute('aria-activedescendant', active);
    else this.#scroller.removeAttribute('aria-activedescendant');
  }

  /** @param {BatchRow} row */
  #addLine(row) {
    const line = new RowLine(row, this.#columns, () => this.#listener.onAct(row));
    line.element.addEventListener('click', () => this.#listener.onSelect(row));
    this.#lines.set(row, line);
    this.#body.append(line.element);
    return line;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.target !== this.#scroller || this.#rows.length === 0) return;
    if (event.key === 'Enter') {
      event.preventDefault();
      this.#listener.onOpen();
      return;
    }
    const page = Math.max(1, Math.floor(this.#scroller.clientHeight / this.#rowHeight) - 2);
    const at = this.#selected ? this.#rows.indexOf(this.#selected) : -1;
    const moves = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: Infinity,
    };
    const to = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (to === undefined) return;
    event.preventDefault();
    const index = Math.min(Math.max(to, 0), this.#rows.length - 1);
    this.#bringIntoSight(index);
    this.#listener.onSelect(/** @type {BatchRow} */ (this.#rows[index]));
  }

  /** @param {number} index */
  #bringIntoSight(index) {
    const height = this.#rowHeight;
    const room = this.#scroller.clientHeight - this.#head.offsetHeight;
    const top = Math.min(this.#scroller.scrollTop, index * height);
    this.#scroller.scrollTop = Math.max(top, (index + 1) * height - room);
  }
}
