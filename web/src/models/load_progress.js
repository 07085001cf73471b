/**
 * How far a load is: a line a stage, with a bar where it can be measured.
 * @import {LoadProgress as Progress} from '../protocol.js'
 */

import { element } from '../dom.js';
import { bytesInWords } from '../words.js';

/** @type {[Progress['stage'], string, 'bytes' | 'count'][]} */
const STAGES = [
  ['python', 'Start Python', 'count'],
  ['download', 'Fetch the model', 'bytes'],
  ['header', 'Read its header', 'bytes'],
  ['weights', 'Weights to the GPU', 'bytes'],
  ['compile', 'Compile programs', 'count'],
  ['store', 'Keep a copy in this browser', 'bytes'],
];

export class LoadProgress {
  element = element('ol', { class: 'stages plain', hidden: true });
  #announce;

  /** @param {(stage: string) => void} announce  Called as a stage begins. */
  constructor(announce) {
    this.#announce = announce;
  }

  clear() {
    this.element.hidden = false;
    this.element.replaceChildren();
  }

  hide() {
    this.element.hidden = true;
  }

  /** @param {Progress} progress */
  show({ stage, done, total }) {
    const [, label, unit] = /** @type {(typeof STAGES)[number]} */ (STAGES.find(([name]) => name === stage));
    const line = this.element.querySelector(`[data-stage=${stage}]`) ?? this.#begin(stage, label);
    const measured = total > 1;
    line.toggleAttribute('data-unmeasured', !measured);
    const bar = /** @type {HTMLProgressElement} */ (line.querySelector('progress'));
    bar.max = Math.max(total, 1);
    bar.value = done;
    bar.hidden = !measured;
    const amount = /** @type {HTMLElement} */ (line.querySelector('.amount'));
    const shown = unit === 'bytes' ? [done, total].map(bytesInWords) : [done, total];
    amount.textContent = measured ? shown.join(' of ') : '';
    line.classList.toggle('complete', done >= total);
  }

  /**
   * @param {string} stage
   * @param {string} label
   */
  #begin(stage, label) {
    // A stage that is too short to measure has ended when the next one starts.
    for (const before of this.element.querySelectorAll('[data-unmeasured]')) before.classList.add('complete');
    const line = element(
      'li',
      { 'data-stage': stage },
      element('span', {}, label),
      element('progress', { 'aria-label': label }),
      element('span', { class: 'amount' }),
    );
    this.element.append(line);
    this.#announce(label);
    return line;
  }
}
