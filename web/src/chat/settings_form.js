/**
 * The settings of one chat: its system prompt, and how its answers are sampled, with what each number does.
 * @import {ChatSettings} from './tree.js'
 */

import { element, field } from '../dom.js';

/** @typedef {Exclude<keyof ChatSettings, 'system'>} NumberName */

/** @type {[NumberName, string, string, Record<string, number>][]} */
const NUMBERS = [
  [
    'temperature',
    'Temperature',
    '0 always takes the likeliest word. Higher is more varied, above 1 more erratic.',
    { min: 0, max: 2, step: 0.1 },
  ],
  [
    'top_p',
    'Top-p',
    'Leaves out unlikely words: only the likeliest, which together have this share, may come. 1 leaves out none.',
    { min: 0.01, max: 1, step: 0.01 },
  ],
  ['top_k', 'Top-k', 'Only so many of the likeliest words may come. 0 sets no number.', { min: 0, step: 1 }],
  [
    'min_p',
    'Min-p',
    'Leaves out words that are less than this share as likely as the likeliest. 0 leaves out none.',
    { min: 0, max: 1, step: 0.01 },
  ],
  ['seed', 'Seed', 'The same number gives the same answer again. Empty, each answer is another.', { step: 1 }],
  [
    'max_tokens',
    'Most tokens',
    'The answer is cut off there; a token is about three quarters of a word.',
    { min: 1, step: 1 },
  ],
];

/** @type {ChatSettings} */
export const FIRST_SETTINGS = {
  system: 'You are a helpful assistant. Answer in one or two sentences.',
  temperature: 0.7,
  top_p: 1,
  top_k: 0,
  min_p: 0,
  max_tokens: 256,
};

export class SettingsForm {
  /** @type {Map<NumberName, HTMLInputElement>} */
  #numbers = new Map();
  #system = element('textarea', { rows: 2 });

  /**
   * @param {ChatSettings} settings  Changed in place.
   * @param {() => void} onChange
   */
  constructor(settings, onChange) {
    this.#system.value = settings.system;
    this.#system.addEventListener('input', () => {
      settings.system = this.#system.value.trim();
      onChange();
    });
    const numbers = NUMBERS.map(([name, label, hint, bounds]) => {
      const input = element('input', { type: 'number', value: `${settings[name] ?? ''}`, ...bounds });
      input.addEventListener('input', () => {
        if (!input.validity.valid) return;
        if (input.value === '') delete settings[name];
        else settings[name] = input.valueAsNumber;
        onChange();
      });
      this.#numbers.set(name, input);
      return field(label, input, hint);
    });
    this.element = element(
      'details',
      { class: 'chat-settings' },
      element('summary', {}, 'Settings'),
      element(
        'div',
        { class: 'settings-fields' },
        field('System prompt', this.#system, 'What the model is told before the conversation begins. May be empty.'),
        ...numbers,
      ),
    );
  }

  /** Whether every number is within its bounds; shows the first that is not. */
  check() {
    const wrong = [...this.#numbers.values()].find((input) => !input.validity.valid);
    if (!wrong) return true;
    this.element.open = true;
    wrong.reportValidity();
    return false;
  }
}
