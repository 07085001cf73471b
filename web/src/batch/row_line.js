/**
 * One row of the table.
 * @import {BatchRow} from './batch_run.js'
 * @import {Column} from './columns.js'
 */

import { button, element } from '../dom.js';
import { stateOf } from './batch_run.js';

export class RowLine {
  #row;
  #columns;
  #cells;
  #act;
  element;

  /**
   * @param {BatchRow} row
   * @param {Column[]} columns
   * @param {() => void} onAct
   */
  constructor(row, columns, onAct) {
    this.#row = row;
    this.#columns = columns;
    this.#cells = columns.map(({ kind }) => element('div', cellProps(kind)));
    this.#act = button('', onAct, { class: 'act', tabIndex: -1 });
    this.element = element(
      'div',
      { role: 'row', class: 'grid-row', id: `batch-row-${row.index}` },
      ...this.#cells,
      element('div', { role: 'gridcell', class: 'acts' }, this.#act),
    );
  }

  /**
   * @param {number} position  Among the rows that show, from 0.
   * @param {number} height  In pixels.
   */
  place(position, height) {
    this.element.style.transform = `translateY(${position * height}px)`;
    this.element.setAttribute('aria-rowindex', String(position + 2));
  }

  /** @param {boolean} isSelected */
  show(isSelected) {
    const row = this.#row;
    const state = stateOf(row);
    this.element.setAttribute('aria-selected', String(isSelected));
    this.element.dataset.state = state;
    for (const [index, column] of this.#columns.entries()) {
      const cell = /** @type {HTMLElement} */ (this.#cells[index]);
      if (column.kind === 'bars') drawBars(cell, row.live ? null : (row.outcome?.probabilities ?? null));
      else setText(column.kind === 'state' ? stateChip(cell, state) : cell, column.text(row));
    }
    const stops = row.live !== null;
    setText(this.#act, stops ? '■' : '▶');
    const words = `${stops ? 'Stop' : 'Run'} row ${row.index + 1}`;
    if (this.#act.ariaLabel !== words) this.#act.ariaLabel = this.#act.title = words;
  }
}

/** @param {Column['kind']} kind */
function cellProps(kind) {
  return { role: kind === 'index' ? 'rowheader' : 'gridcell', class: kind === 'state' ? 'state-cell' : kind };
}

/**
 * @param {HTMLElement} cell
 * @param {string} state
 */
function stateChip(cell, state) {
  const chip = /** @type {HTMLElement} */ (
    cell.firstElementChild ?? cell.appendChild(element('span', { class: 'state' }))
  );
  if (chip.dataset.state !== state) chip.dataset.state = state;
  return chip;
}

/**
 * @param {HTMLElement} node
 * @param {string} text
 */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * A bar a label, the likeliest marked.
 * @param {HTMLElement} cell
 * @param {Record<string, number> | null} probabilities
 */
function drawBars(cell, probabilities) {
  const entries = Object.entries(probabilities ?? {});
  const words = entries.map(([label, share]) => `${label} ${(100 * share).toFixed(0)} %`).join(', ');
  if (cell.title === words) return;
  cell.title = words;
  const most = Math.max(...entries.map(([, share]) => share));
  const bars = element('span', { class: 'bars', 'aria-hidden': true });
  for (const [, share] of entries) {
    const bar = element('i', { class: share === most ? 'most' : '' });
    bar.style.height = `${Math.max(4, 100 * share)}%`;
    bars.append(bar);
  }
  const figure = entries.length > 0 ? element('span', { 'aria-hidden': true }, `${(100 * most).toFixed(0)} %`) : '';
  cell.replaceChildren(bars, figure, element('span', { class: 'visually-hidden' }, words));
}
