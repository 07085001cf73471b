/**
 * What an answer is (text, one of some labels, JSON) and how it is sampled.
 * @import {Mode, Settings} from './answer.js'
 */

import { element, field } from '../dom.js';
import { labelsOf, settingsProblem } from './answer.js';
import { SchemaForm } from './schema_form.js';

/** @type {[Mode, string, string][]} */
const MODES = [
  ['text', 'Text', 'Whatever the model writes.'],
  ['choices', 'A label', 'One of your labels, with the probability of each.'],
  ['json', 'JSON', 'An object with your fields, which become columns.'],
];

export class AnswerForm {
  #mode = /** @type {Mode} */ ('text');
  #hint = element('p', { class: 'told' });
  #radios = MODES.map(([value]) => element('input', { type: 'radio', name: 'answer-mode', value }));
  #labels = element('textarea', { rows: 3, spellcheck: false, placeholder: 'positive\nnegative' });
  #labelsProblem = element('p', { class: 'problem', role: 'status' });
  #labelsPart = element('div', {}, field('Labels, one a line', this.#labels), this.#labelsProblem);
  #schema;
  #maxTokens = numberInput({ min: 1, max: 100_000, step: 1 });
  #temperature = numberInput({ min: 0, max: 2, step: 0.1 });
  #topP = numberInput({ min: 0.05, max: 1, step: 0.05 });
  #seed = numberInput({ min: 0, max: 2 ** 31 - 1, step: 1, required: false, placeholder: 'any' });
  #samplingProblem = element('p', { class: 'problem', role: 'status' });
  #sampling;

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#schema = new SchemaForm(onChange);
    for (const radio of this.#radios) {
      radio.addEventListener('change', () => {
        this.#setMode(/** @type {Mode} */ (radio.value));
        onChange();
      });
    }
    const inputs = [this.#labels, this.#maxTokens, this.#temperature, this.#topP, this.#seed];
    for (const input of inputs) input.addEventListener('input', onChange);
    const modes = element(
      'fieldset',
      { class: 'modes' },
      element('legend', { class: 'field-label' }, 'Answer'),
      ...MODES.map(([, label], index) => element('label', {}, /** @type {HTMLElement} */ (this.#radios[index]), label)),
    );
    this.#sampling = element(
      'div',
      { class: 'sampling' },
      element('div', { class: 'pair' }, field('Most tokens', this.#maxTokens), field('Temperature', this.#temperature)),
      this.#samplingProblem,
      element(
        'details',
        {},
        element('summary', {}, 'More about sampling'),
        element('div', { class: 'pair' }, field('Top p', this.#topP), field('Seed', this.#seed)),
        element(
          'small',
          {},
          'Temperature 0 takes the likeliest token each time. Above it, top p keeps the likeliest tokens up to that share, and a seed draws the same answers again.',
        ),
      ),
    );
    this.element = element(
      'div',
      { class: 'answer-form' },
      modes,
      this.#hint,
      this.#labelsPart,
      this.#schema.element,
      this.#sampling,
    );
  }

  /** @returns {Omit<Settings, 'template' | 'system'>} */
  get settings() {
    const seed = this.#seed.valueAsNumber;
    return {
      mode: this.#mode,
      labels: this.#labels.value,
      schema: this.#schema.schema,
      maxTokens: this.#maxTokens.valueAsNumber,
      temperature: this.#temperature.valueAsNumber,
      topP: this.#topP.valueAsNumber,
      seed: Number.isNaN(seed) ? null : seed,
    };
  }

  /** @param {Settings} settings */
  show(settings) {
    this.#labels.value = settings.labels;
    this.#schema.show(settings.schema);
    this.#maxTokens.valueAsNumber = settings.maxTokens;
    this.#temperature.valueAsNumber = settings.temperature;
    this.#topP.valueAsNumber = settings.topP;
    this.#seed.value = settings.seed === null ? '' : String(settings.seed);
    this.#setMode(settings.mode);
  }

  /**
   * Says what keeps rows from being asked so.
   * @param {Settings} settings
   * @returns {string} '' where nothing does.
   */
  check(settings) {
    const problem = settingsProblem(settings);
    const labels = labelsOf(settings.labels).length;
    this.#labelsProblem.textContent = settings.mode === 'choices' && labels > 0 ? problem : '';
    this.#schema.check();
    const inputs = settings.mode === 'choices' ? [] : [this.#maxTokens, this.#temperature, this.#topP, this.#seed];
    const wrong = inputs.find((input) => !input.checkValidity());
    const invalid = wrong ? `${wrong.labels?.[0]?.textContent}: ${wrong.validationMessage}` : '';
    this.#samplingProblem.textContent = invalid;
    return problem || invalid;
  }

  /** @param {Mode} mode */
  #setMode(mode) {
    this.#mode = mode;
    for (const radio of this.#radios) radio.checked = radio.value === mode;
    this.#hint.textContent = MODES.find(([value]) => value === mode)?.[2] ?? '';
    this.#labelsPart.hidden = mode !== 'choices';
    this.#schema.element.hidden = mode !== 'json';
    this.#sampling.hidden = mode === 'choices';
  }
}

/** @param {Record<string, unknown>} props */
function numberInput(props) {
  return element('input', { type: 'number', required: true, ...props });
}
