/**
 * The right side of the batch view: buttons and progress, the table, and the selected row. Draws once a frame, however
 * often something changes.
 * @import {Settings} from './answer.js'
 * @import {BatchRow, BatchRun} from './batch_run.js'
 * @import {Column} from './columns.js'
 * @import {BarListener} from './run_bar.js'
 */

import { element } from '../dom.js';
import { columnsOf } from './columns.js';
import { arranged } from './order.js';
import { Rate } from './progress.js';
import { RowDetail } from './row_detail.js';
import { RowGrid } from './row_grid.js';
import { RunBar } from './run_bar.js';

/**
 * @typedef {Omit<BarListener, 'onFilter'> & {
 *   onEdit: (row: BatchRow, column: string, value: string) => void,
 *   onAct: (row: BatchRow) => void,
 * }} ResultsListener  `onAct`: run a row, or stop it.
 *
 * @typedef {object} Readiness
 * @property {string} label  What the run button says.
 * @property {boolean} canRun
 * @property {string} why  Why no row can run; '' where one can.
 * @property {string} note  What of that is not told elsewhere.
 */

export class BatchResults {
  #run;
  #readiness;
  /** @type {Settings} */
  #settings;
  /** @type {Column[]} */
  #columns = [];
  /** @type {{title: string, descending: boolean} | null} */
  #sorting = null;
  #rate = new Rate();
  #frame = 0;
  #orderIsStale = false;
  #detailIsStale = false;
  #bar;
  #grid;
  #detail;
  #empty;
  element;

  /**
   * @param {BatchRun} run
   * @param {Settings} settings
   * @param {() => Readiness} readiness
   * @param {ResultsListener} listener
   * @param {Node[]} notices  Between the buttons and the table.
   * @param {HTMLElement} empty  In place of the table where there are no rows.
   */
  constructor(run, settings, readiness, listener, notices, empty) {
    this.#run = run;
    this.#settings = settings;
    this.#readiness = readiness;
    this.#empty = empty;
    /** @param {BatchRow} row */
    const onAct = (row) => {
      this.#select(row);
      listener.onAct(row);
    };
    this.#bar = new RunBar({ ...listener, onFilter: () => this.rearrange() });
    this.#grid = new RowGrid({
      onSelect: (row) => this.#select(row),
      onOpen: () => this.#detail.focus(),
      onSort: (title) => this.#sort(title),
      onAct,
    });
    this.#detail = new RowDetail({
      onEdit: listener.onEdit,
      onAct,
      onStep: (step) => this.#step(step),
      onLeave: () => this.#grid.focus(),
    });
    this.element = element(
      'div',
      { class: 'batch-results' },
      this.#bar.element,
      ...notices,
      empty,
      this.#grid.element,
      this.#detail.element,
    );
  }

  /**
   * Shows the rows anew: others, or asked in another way.
   * @param {Settings} settings
   */
  show(settings) {
    this.#settings = settings;
    if (this.#run.rows.length === 0) {
      this.#sorting = null;
      this.#bar.reset();
    }
    this.#columns = columnsOf(this.#run.columns, settings);
    this.#grid.setColumns(this.#columns, this.#sorting);
    const { selected } = this.#grid;
    const isThere = selected && this.#run.rows[selected.index] === selected;
    const row = isThere ? selected : (this.#run.rows[0] ?? null);
    this.#detail.open(row, this.#run.columns);
    this.#select(row);
    this.rearrange();
  }

  /** @param {BatchRow} row  One that has begun, or has a token more. */
  showProgress(row) {
    if (row.live?.tokens) this.#rate.addToken(performance.now());
    else this.#orderIsStale = true;
    this.#refreshRow(row);
  }

  /** @param {BatchRow} row  One whose values or outcome are other ones. */
  showChange(row) {
    this.#orderIsStale = true;
    this.#refreshRow(row);
  }

  /** Arranges the rows again, after what decides about their order or their states has changed. */
  rearrange() {
    this.#orderIsStale = this.#detailIsStale = true;
    this.refresh();
  }

  /** Draws with the next frame all that has changed until then. */
  refresh() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const readiness = this.#readiness();
    const isEmpty = this.#run.rows.length === 0;
    this.#empty.hidden = !isEmpty;
    this.#grid.element.hidden = this.#detail.element.hidden = isEmpty;
    if (this.#orderIsStale) this.#grid.setRows(this.#arranged(), this.#run.rows.length);
    else this.#grid.refresh();
    if (this.#detailIsStale) this.#detail.show(this.#settings, readiness.why);
    this.#orderIsStale = this.#detailIsStale = false;
    this.#bar.show(this.#run, readiness, this.#rate.perSecond(performance.now()));
  }

  /** @param {BatchRow} row */
  #refreshRow(row) {
    if (row === this.#grid.selected) this.#detailIsStale = true;
    this.refresh();
  }

  /** @param {BatchRow | null} row */
  #select(row) {
    if (row !== this.#grid.selected) this.#detail.open(row, this.#run.columns);
    this.#grid.select(row);
    this.#detailIsStale = true;
    this.refresh();
  }

  /** @param {1 | -1} step */
  #step(step) {
    const rows = this.#arranged();
    const next = rows[(this.#grid.selected ? rows.indexOf(this.#grid.selected) : -1) + step];
    if (next) this.#select(next);
  }

  /** @param {string} title  Up, then down, then as the rows came. */
  #sort(title) {
    if (this.#sorting?.title !== title) this.#sorting = { title, descending: false };
    else this.#sorting = this.#sorting.descending ? null : { title, descending: true };
    this.#grid.setColumns(this.#columns, this.#sorting);
    this.rearrange();
  }

  #arranged() {
    const { title, descending = false } = this.#sorting ?? {};
    const by = this.#columns.find((column) => column.title === title)?.by;
    const { group, search } = this.#bar;
    return arranged(this.#run.rows, { group, search, sorting: by ? { by, descending } : null });
  }
}
