/**
 * A model before it is loaded: whether it fits, what it takes, and the settings of its load with their memory.
 * @import {Inspection} from '../inspection.js'
 * @import {CacheFit, EngineOptions} from '../protocol.js'
 */

import { button, element, field } from '../dom.js';
import { errorObject } from '../errors.js';
import { factsInWords, memoryInWords, roomInWords, verdictOf } from './fit_words.js';

const MEBIBYTE = 2 ** 20;
const WAIT_MS = 150;

/** @type {[NonNullable<EngineOptions['kv_dtype']>, string][]} */
const KV_TYPES = [
  ['float16', '16-bit floats'],
  ['float8e4m3fn', '8-bit floats: half the memory, rougher'],
  ['float32', '32-bit floats: twice the memory'],
];

export class InspectionPanel {
  #inspection;
  #timer = 0;
  #verdict = element('p', { class: 'verdict' });
  #detail = element('p', { class: 'summary' });
  #words = element('p', { class: 'summary', role: 'status' });
  #problem = element('p', { class: 'problem', role: 'status' });
  #context = element('input', { type: 'number', min: 1, step: 1 });
  #memory = element('input', { type: 'number', min: 1, step: 1 });
  #dtype = element('select', {}, ...KV_TYPES.map(([value, label]) => element('option', { value }, label)));
  #load;

  /**
   * @param {Inspection} inspection
   * @param {{onLoad: (options: EngineOptions) => void, onClose: () => void}} actions
   */
  constructor(inspection, { onLoad, onClose }) {
    this.#inspection = inspection;
    const { told } = inspection;
    this.#load = button('Load', () => onLoad(this.#options()), { class: 'primary', disabled: true });
    const facts = factsInWords(told).map(([name, value]) =>
      element('div', {}, element('dt', {}, name), element('dd', {}, value)),
    );
    for (const input of [this.#context, this.#memory, this.#dtype]) {
      input.addEventListener('input', () => {
        clearTimeout(this.#timer);
        this.#timer = window.setTimeout(() => this.#measure(), WAIT_MS);
      });
    }
    this.element = element(
      'section',
      { class: 'inspection', 'aria-label': `About ${told.name}`, tabIndex: -1 },
      element('h2', {}, told.facts?.name ?? told.name),
      this.#verdict,
      this.#detail,
      element('dl', { class: 'facts' }, ...facts),
      ...(told.facts?.warnings ?? []).map((warning) => element('p', { class: 'warning' }, warning)),
      ...(told.facts ? [this.#settings()] : []),
      this.#problem,
      element('div', { class: 'actions' }, button('Close', onClose), this.#load),
    );
    this.#problem.textContent = roomInWords(told);
    this.#begin();
  }

  #settings() {
    return element(
      'div',
      { class: 'load-settings' },
      element(
        'div',
        { class: 'pair' },
        field('Longest context, in tokens', this.#context, 'Of one prompt with its answer.'),
        field('Memory for the KV cache, in MiB', this.#memory, 'Shared by all prompts.'),
      ),
      field('The cache stores', this.#dtype, 'Smaller numbers make room for more tokens and change answers a little.'),
      this.#words,
    );
  }

  /** Fills the settings with what a load would take by itself. */
  async #begin() {
    const { facts } = this.#inspection.told;
    const fit = facts ? await this.#fit({}) : null;
    if (facts) {
      this.#context.max = `${facts.context_length}`;
      this.#context.value = `${facts.context_length}`;
    }
    if (fit) this.#memory.value = `${Math.max(1, Math.round(fit.num_bytes / MEBIBYTE))}`;
    this.#show(fit);
  }

  /** @returns {EngineOptions} */
  #options() {
    if (!this.#inspection.told.facts) return {};
    const [context, memory] = [this.#context.valueAsNumber, this.#memory.valueAsNumber];
    return {
      ...(context > 0 && { context_length: context }),
      ...(memory > 0 && { kv_memory: memory * MEBIBYTE }),
      kv_dtype: KV_TYPES[this.#dtype.selectedIndex]?.[0] ?? 'float16',
    };
  }

  async #measure() {
    const timer = this.#timer;
    const fit = await this.#fit(this.#options());
    if (timer === this.#timer) this.#show(fit);
  }

  /**
   * @param {EngineOptions} options
   * @returns {Promise<CacheFit | null>}
   */
  async #fit(options) {
    try {
      const fit = await this.#inspection.fit(options);
      this.#problem.textContent = roomInWords(this.#inspection.told);
      return fit;
    } catch (error) {
      this.#problem.textContent = errorObject(error).message;
      return null;
    }
  }

  /** @param {CacheFit | null} fit */
  #show(fit) {
    const { told } = this.#inspection;
    const { level, title, detail } = verdictOf(told, fit);
    this.#verdict.textContent = title;
    this.#verdict.dataset.level = level;
    this.#detail.textContent = detail;
    this.#words.textContent = told.facts && fit ? memoryInWords(told.facts, fit) : '';
    this.#load.disabled = level === 'not';
  }
}
