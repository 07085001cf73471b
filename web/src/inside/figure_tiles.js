/**
 * The figures that are read first.
 * @import {EngineSnapshot, EngineStats} from '../protocol.js'
 */

import { element } from '../dom.js';
import { counted } from '../words.js';
import { firstTokens, median, sharedShare, timeInWords } from './figures.js';

const NAMES = ['Tokens a second', 'First token after', 'Step', 'Requests', 'Prompt tokens shared', 'Evictions'];

export class FigureTiles {
  #tiles = NAMES.map((name) => ({ name, value: element('dd'), note: element('dd', { class: 'note' }) }));

  constructor() {
    this.element = element(
      'dl',
      { class: 'tiles' },
      ...this.#tiles.map(({ name, value, note }) => element('div', {}, element('dt', {}, name), value, note)),
    );
    this.#set(NAMES.map(() => ['–', '']));
  }

  /**
   * @param {EngineSnapshot} snapshot
   * @param {EngineStats} stats
   * @param {number} rate  Of the last busy second.
   */
  show(snapshot, stats, rate) {
    const first = firstTokens(snapshot.ended);
    const step = median(snapshot.steps.map(({ milliseconds }) => milliseconds / 1000));
    const share = sharedShare(stats);
    const whole = (/** @type {number} */ value) => value.toLocaleString('en');
    this.#set([
      [rate.toFixed(1), `${whole(stats.output_tokens)} tokens in all`],
      first
        ? [timeInWords(first.median), `median of ${first.count}; slowest ${timeInWords(first.slowest)}`]
        : ['–', 'no request has ended yet'],
      step === null ? ['–', 'no step yet'] : [timeInWords(step), `median; ${whole(stats.steps)} steps in all`],
      [`${stats.running}`, `running; ${stats.waiting} queued`],
      share === null
        ? ['–', 'no prompt yet']
        : [`${Math.round(100 * share)} %`, `${whole(stats.cached_tokens)} not computed again`],
      [
        whole(stats.evictions),
        stats.preemptions ? `and ${counted(stats.preemptions, 'request')} set aside` : 'kept pages given up',
      ],
    ]);
  }

  /** @param {string[][]} figures */
  #set(figures) {
    for (const [index, { value, note }] of this.#tiles.entries()) {
      const [figure = '', words = ''] = figures[index] ?? [];
      if (value.textContent !== figure) value.textContent = figure;
      if (note.textContent !== words) note.textContent = words;
    }
  }
}
