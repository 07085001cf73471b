/**
 * What the model and its pool of pages take of the device, as one bar and in words.
 * @import {EngineSnapshot, LoadedModel} from '../protocol.js'
 */

import { element } from '../dom.js';
import { bytesInWords } from '../words.js';
import { countPages } from './pages.js';

/** @type {[string, string][]} */
const PARTS = [
  ['weights', 'weights'],
  ['used', 'pages in use'],
  ['kept', 'pages kept for reuse'],
  ['free', 'free pages'],
];

export class MemoryBar {
  #bar = element('div', { class: 'memory-bar', 'aria-hidden': true });
  #parts = PARTS.map(([kind, words]) => ({
    segment: element('span', { class: kind }),
    size: element('span', { class: 'number' }),
    line: [element('span', { class: `swatch memory-${kind}`, 'aria-hidden': true }), ' ', ` ${words}`],
  }));

  constructor() {
    this.#bar.append(...this.#parts.map(({ segment }) => segment));
    const lines = this.#parts.map(({ size, line: [swatch = '', space = '', words = ''] }) =>
      element('li', {}, swatch, space, size, words),
    );
    this.element = element('div', { class: 'memory' }, this.#bar, element('ul', { class: 'legend plain' }, ...lines));
  }

  /**
   * @param {LoadedModel['memory']} memory
   * @param {EngineSnapshot} snapshot
   */
  show({ weights, kv_cache }, snapshot) {
    const { owned, shared, cached, free } = countPages(snapshot);
    const page = (kv_cache ?? 0) / snapshot.num_blocks;
    const bytes = [weights ?? 0, (owned + shared) * page, cached * page, free * page];
    const total = bytes.reduce((sum, part) => sum + part, 0);
    for (const [index, { segment, size }] of this.#parts.entries()) {
      const part = bytes[index] ?? 0;
      segment.style.width = `${(100 * part) / Math.max(total, 1)}%`;
      size.textContent = total ? bytesInWords(part) : 'not told';
    }
  }
}
