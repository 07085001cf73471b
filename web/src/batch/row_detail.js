/**
 * The selected row: its values to edit, the exact prompt, its whole answer, and its figures.
 * @import {Settings} from './answer.js'
 * @import {BatchRow} from './batch_run.js'
 */

import { button, element } from '../dom.js';
import { errorInWords } from '../words.js';
import { stateOf } from './batch_run.js';
import { rateOf } from './columns.js';
import { durationInWords } from './progress.js';
import { pieces } from './template.js';

/**
 * @typedef {object} DetailListener
 * @property {(row: BatchRow, column: string, value: string) => void} onEdit
 * @property {(row: BatchRow) => void} onAct  Run it, or stop it.
 * @property {(step: 1 | -1) => void} onStep  To the next or the previous row.
 * @property {() => void} onLeave  Escape.
 */

export class RowDetail {
  #listener;
  /** @type {BatchRow | null} */
  #row = null;
  #title = element('h2');
  #state = element('span', { class: 'state' });
  #figures = element('p', { class: 'figures' });
  #act = button('', () => this.#row && this.#listener.onAct(this.#row));
  #values = element('div', { class: 'values' });
  #prompt = element('div', { class: 'prompt' });
  #answer = element('div', { class: 'answer' });
  element;

  /** @param {DetailListener} listener */
  constructor(listener) {
    this.#listener = listener;
    this.element = element(
      'section',
      { class: 'row-detail', 'aria-label': 'Selected row' },
      element(
        'header',
        {},
        button('‹', () => listener.onStep(-1), { class: 'quiet', 'aria-label': 'Previous row' }),
        this.#title,
        button('›', () => listener.onStep(1), { class: 'quiet', 'aria-label': 'Next row' }),
        this.#state,
        this.#figures,
        this.#act,
      ),
      part('Values', this.#values),
      part('Prompt', this.#prompt),
      part('Answer', this.#answer),
    );
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') listener.onLeave();
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || this.#act.disabled || this.#row?.live) return;
      event.preventDefault();
      this.#act.click();
    });
  }

  focus() {
    (this.#values.querySelector('textarea') ?? this.#act).focus();
  }

  /**
   * @param {BatchRow | null} row
   * @param {string[]} columns
   */
  open(row, columns) {
    this.#row = row;
    this.#values.replaceChildren(...(row ? columns.map((column) => this.#editor(row, column)) : []));
  }

  /**
   * Shows the row as it now is.
   * @param {Settings} settings
   * @param {string} why  Why it cannot run; '' where it can.
   */
  show(settings, why) {
    const row = this.#row;
    if (!row) return;
    const state = stateOf(row);
    this.#title.textContent = `Row ${row.index + 1}`;
    this.#state.textContent = this.#state.dataset.state = state;
    this.#figures.textContent = figuresOf(row);
    this.#act.textContent = row.live ? 'Stop this row' : row.outcome ? 'Run this row again' : 'Run this row';
    this.#act.disabled = !row.live && why !== '';
    this.#act.title = row.live ? '' : why;
    for (const editor of this.#values.querySelectorAll('textarea')) {
      editor.readOnly = row.live !== null;
      const value = row.values[editor.name] ?? '';
      if (editor.value !== value) editor.value = value;
    }
    this.#prompt.replaceChildren(...promptOf(row, settings));
    this.#answer.replaceChildren(...answerOf(row, settings));
  }

  /**
   * @param {BatchRow} row
   * @param {string} column
   */
  #editor(row, column) {
    const editor = element('textarea', { rows: 1, name: column, value: row.values[column] ?? '' });
    editor.addEventListener('input', () => this.#listener.onEdit(row, column, editor.value));
    return element('label', { class: 'value' }, element('span', {}, column), editor);
  }
}

/**
 * @param {string} title
 * @param {HTMLElement} body
 */
function part(title, body) {
  return element('div', { class: 'part' }, element('h3', {}, title), body);
}

/** @param {BatchRow} row */
function figuresOf({ live, outcome, ...rest }) {
  if (live || !outcome?.tokens) return '';
  const { prompt, cached, completion } = outcome.tokens;
  const rate = rateOf({ live, outcome, ...rest });
  return [
    `${prompt} tokens in${cached ? ` (${cached} shared)` : ''}`,
    `${completion} out`,
    ...(outcome.seconds === null ? [] : [durationInWords(outcome.seconds)]),
    ...(rate === null ? [] : [`${rate.toFixed(1)} tokens/s`]),
  ].join(' · ');
}

/**
 * @param {BatchRow} row
 * @param {Settings} settings
 */
function promptOf(row, { system, template }) {
  const filled = pieces(template, row.values).map(({ text, column }) =>
    column === null ? text : element('mark', { title: column }, text),
  );
  return [
    ...(system.trim() ? [element('p', { class: 'role' }, 'system'), element('p', {}, system)] : []),
    ...(system.trim() ? [element('p', { class: 'role' }, 'user')] : []),
    element('p', {}, ...filled),
  ];
}

/**
 * @param {BatchRow} row
 * @param {Settings} settings
 * @returns {Node[]}
 */
function answerOf({ live, outcome }, { mode }) {
  if (live) return [element('p', { class: live.text ? '' : 'empty' }, live.text || 'Nothing yet.')];
  if (!outcome) return [element('p', { class: 'empty' }, 'Not run yet.')];
  if (outcome.error) {
    const { title, advice, detail } = errorInWords(outcome.error);
    return [
      element('p', { class: 'row-error' }, title),
      element('p', {}, advice),
      element('p', { class: 'detail' }, detail),
    ];
  }
  const notes = [];
  if (outcome.state === 'cut off') {
    const json = mode === 'json' ? 'before the JSON was whole' : 'there';
    notes.push(
      element('p', { class: 'note' }, `It had the most tokens it may have and ends ${json}. Allow more tokens.`),
    );
  }
  if (outcome.probabilities) return [barList(outcome.probabilities), ...notes];
  if (outcome.value !== undefined && outcome.value !== null && typeof outcome.value === 'object') {
    return [memberList(/** @type {Record<string, unknown>} */ (outcome.value)), ...notes];
  }
  return [element('p', { class: outcome.text ? '' : 'empty' }, outcome.text || 'The answer is empty.'), ...notes];
}

/** @param {Record<string, number>} probabilities */
function barList(probabilities) {
  const entries = Object.entries(probabilities).sort(([, a], [, b]) => b - a);
  return element(
    'dl',
    { class: 'bar-list' },
    ...entries.flatMap(([label, share]) => {
      const bar = element('i');
      bar.style.width = `${100 * share}%`;
      return [
        element('dt', {}, label),
        element('dd', {}, element('span', { class: 'track' }, bar), `${(100 * share).toFixed(1)} %`),
      ];
    }),
  );
}

/** @param {Record<string, unknown>} members */
function memberList(members) {
  return element(
    'dl',
    { class: 'member-list' },
    ...Object.entries(members).flatMap(([name, member]) => [
      element('dt', {}, name),
      element('dd', {}, typeof member === 'string' ? member : JSON.stringify(member)),
    ]),
  );
}
