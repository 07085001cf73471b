/**
 * The left side of the batch view: the rows, what is asked of each, and what an answer is.
 * @import {Settings} from './answer.js'
 * @import {Reading, Table} from './table_text.js'
 */

import { element } from '../dom.js';
import { AnswerForm } from './answer_form.js';
import { RowsForm } from './rows_form.js';
import { onlyColumn } from './table_text.js';
import { placeholders } from './template.js';
import { TemplateForm } from './template_form.js';

/**
 * @typedef {object} FormListener
 * @property {(table: Table, reading: Reading) => void} onTable
 * @property {() => void} onSettings
 * @property {() => void} onRun  Ctrl and Enter.
 */

export class BatchForm {
  #rows;
  #template;
  #answer;
  element;

  /** @param {FormListener} listener */
  constructor({ onTable, onSettings, onRun }) {
    this.#rows = new RowsForm(onTable, () => placeholders(this.#template.template));
    this.#template = new TemplateForm(onSettings);
    this.#answer = new AnswerForm(onSettings);
    this.element = element(
      'form',
      { class: 'batch-form', onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      this.#rows.element,
      this.#template.element,
      this.#answer.element,
    );
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) onRun();
    });
  }

  /** @returns {Settings} */
  get settings() {
    return { template: this.#template.template, system: this.#template.system, ...this.#answer.settings };
  }

  /** What the only column of rows without names is called: as the template calls it. */
  get onlyColumn() {
    return onlyColumn(placeholders(this.#template.template));
  }

  /** @param {File} file */
  takeFile(file) {
    this.#rows.takeFile(file);
  }

  /** @param {string} text */
  takeText(text) {
    this.#rows.takeText(text);
  }

  /** @param {Settings} settings */
  showSettings(settings) {
    this.#template.show(settings);
    this.#answer.show(settings);
  }

  /**
   * @param {Table} table
   * @param {Reading} reading  How the rows were read.
   */
  showTable(table, reading) {
    this.#rows.show(table, reading);
  }

  /**
   * Offers the columns, and says what keeps rows with them from being asked.
   * @param {string[]} columns
   * @returns {string} '' where nothing does.
   */
  check(columns) {
    const unfit = this.#template.check(columns);
    const wrong = this.#answer.check(this.settings);
    return unfit || wrong;
  }
}
