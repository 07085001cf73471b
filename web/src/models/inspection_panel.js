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

export class InspectionPanel {
  #inspection;
  #timer = 0;
  #verdict = element('p', { class: 'verdict' });
  #detail = element('p', { class: 'summary' });
  #words = element('p', { class: 'summary', role: 'status' });
  #problem = element('p', { class: 'problem', role: 'status' });
  #context = element('input', { type: 'number', min: 1, step: 1 });
  #memory = element('input', { type: 'number', min: 1, step: 1 });
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
    for (const input of [this.#context, this.#memory]) {
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
        field(
          'Memory for the KV cache, in MiB',
          this.#memory,
          'Shared by all prompts; in 16-bit floats, the one type that it has here.',
        ),
      ),
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
