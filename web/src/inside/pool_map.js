/**
 * The picture of the pool: whose each page is, what is shared, kept and free, and, as it happens, what is given up for
 * new content or taken up again. The pointer, or the arrow keys, tell of one page; a request can be made to stand out.
 * @import {EngineSnapshot} from '../protocol.js'
 * @import {MapLayout} from './map_layout.js'
 */

import { element } from '../dom.js';
import { layoutOf, pageAt } from './map_layout.js';
import { countPages, pageChanges, pageInWords, poolInWords } from './pages.js';
import { paintPool } from './paint.js';

/** How long a change stands out. */
const CHANGE_MS = 1200;

/** @type {[string, string][]} */
const LEGEND = [
  ['owned', 'owned by one request, in its colour'],
  ['shared', 'shared: requests that begin alike, a stripe each'],
  ['cached', 'kept for a later request that begins alike'],
  ['free', 'free'],
  ['evicted', 'kept content given up just now'],
  ['reused', 'kept content taken up just now'],
];

export class PoolMap {
  /** @type {EngineSnapshot | null} */
  #snapshot = null;
  /** @type {MapLayout} */
  #layout = layoutOf(0, 1);
  /** @type {string | null} */
  #owner = null;
  /** @type {number | null} */
  #page = null;
  /** @type {{evicted: number[], reused: number[], at: number}} */
  #changes = { evicted: [], reused: [], at: 0 };
  #frame = 0;
  #still = matchMedia('(prefers-reduced-motion: reduce)');
  #canvas = element('canvas', { class: 'pool', role: 'img', tabIndex: 0 });
  #told = element('p', { class: 'told', role: 'status' });
  /** @type {Map<string, {swatch: HTMLElement, count: HTMLElement}>} */
  #legend = new Map();

  constructor() {
    const legend = LEGEND.map(([kind, words]) => {
      const swatch = element('span', { class: `swatch ${kind}`, 'aria-hidden': true });
      const count = element('span', { class: 'number' });
      this.#legend.set(kind, { swatch, count });
      return element('li', {}, swatch, ' ', count, ` ${words}`);
    });
    this.element = element(
      'div',
      { class: 'pool-map' },
      element('div', { class: 'pool-frame' }, this.#canvas),
      this.#told,
      element('ul', { class: 'legend plain' }, ...legend),
    );
    this.#canvas.addEventListener('pointermove', ({ offsetX, offsetY }) => {
      this.#point(pageAt(this.#layout, offsetX, offsetY));
    });
    this.#canvas.addEventListener('pointerleave', () => this.#point(null));
    this.#canvas.addEventListener('blur', () => this.#point(null));
    this.#canvas.addEventListener('keydown', (event) => this.#step(event));
    new ResizeObserver(() => this.#paint()).observe(this.element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#paint());
    this.clear();
  }

  clear() {
    this.#snapshot = null;
    this.#canvas.hidden = true;
    this.#told.textContent = 'Load a model to see its pool of pages.';
  }

  /** @param {EngineSnapshot} snapshot */
  show(snapshot) {
    const changes = pageChanges(this.#snapshot?.blocks ?? [], snapshot.blocks);
    if (changes.evicted.length + changes.reused.length > 0) this.#changes = { ...changes, at: performance.now() };
    this.#snapshot = snapshot;
    this.#canvas.hidden = false;
    this.#canvas.setAttribute('aria-label', poolInWords(snapshot));
    const counts = countPages(snapshot);
    for (const [kind, { count }] of this.#legend) {
      count.textContent = kind in counts ? `${counts[/** @type {keyof typeof counts} */ (kind)]}` : '';
    }
    this.#tell();
    this.#paint();
  }

  /**
   * Lets the pages of one request stand out; null lets all.
   * @param {string | null} owner
   */
  mark(owner) {
    if (owner === this.#owner) return;
    this.#owner = owner;
    this.#paint();
  }

  /** @param {number | null} page */
  #point(page) {
    if (page === this.#page) return;
    this.#page = page;
    this.#tell();
    this.#paint();
  }

  /** @param {KeyboardEvent} event */
  #step(event) {
    const { columns, count } = this.#layout;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.#point(this.#page === null ? 0 : Math.min(count - 1, Math.max(0, this.#page + step)));
  }

  #tell() {
    const snapshot = this.#snapshot;
    if (!snapshot) return;
    const page = this.#page;
    const requests = new Map([...snapshot.running, ...snapshot.waiting].map(({ id, label }) => [id, label]));
    const block = snapshot.blocks.find(({ id }) => id === page);
    const words =
      page === null
        ? 'Point at a page, or move over the picture with the arrow keys, to see whose it is.'
        : pageInWords(page, block, (owner) => requests.get(owner) ?? `request ${owner}`);
    if (this.#told.textContent !== words) this.#told.textContent = words;
  }

  #paint() {
    cancelAnimationFrame(this.#frame);
    const snapshot = this.#snapshot;
    const width = this.element.clientWidth;
    if (!snapshot || width === 0) return;
    this.#layout = layoutOf(snapshot.num_blocks, width);
    this.#canvas.style.height = `${this.#layout.height}px`;
    const age = performance.now() - this.#changes.at;
    const fading = age < CHANGE_MS;
    // Without motion a change stands out until it is over, and does not fade.
    const strength = !fading ? 0 : this.#still.matches ? 1 : 1 - age / CHANGE_MS;
    const marks = { ...this.#changes, owner: this.#owner, page: this.#page, strength };
    paintPool(this.#canvas, this.#layout, snapshot, marks, {
      line: getComputedStyle(this.#canvas).color,
      evicted: this.#colourOf('evicted'),
      reused: this.#colourOf('reused'),
    });
    if (fading && !this.#still.matches) this.#frame = requestAnimationFrame(() => this.#paint());
  }

  /** @param {string} kind */
  #colourOf(kind) {
    const swatch = this.#legend.get(kind)?.swatch;
    return swatch ? getComputedStyle(swatch).color : '';
  }
}
