/**
 * The memory view: the pool of pages as a picture, and the same in words and in a table.
 * @import {Pageloom} from '../engine.js'
 * @import {EngineSnapshot, RequestView} from '../protocol.js'
 */

import { element } from '../dom.js';
import { hueOf, poolInWords } from './pages.js';
import { paintPool } from './paint.js';

const POLL_MS = 400;

const LEGEND = [
  ['owned', 'one colour: a page that one request owns'],
  ['shared', 'two colours: a page that several requests share, since they begin alike'],
  ['cached', 'hatched: kept for a later request that begins alike, given up when room is needed'],
  ['free', 'empty: free'],
];

export class InsideView {
  /** @type {Pageloom | null} */
  #engine = null;
  #timer = 0;
  #visible = false;
  #canvas = element('canvas', { class: 'pool', role: 'img', 'aria-label': 'Pages of the pool' });
  #words = element('p', { class: 'summary' }, 'Load a model to see its pool of pages.');
  #requests = element('tbody');

  /** @param {HTMLElement} root */
  constructor(root) {
    const legend = LEGEND.map(([kind, words]) =>
      element('li', {}, element('span', { class: `swatch ${kind}`, 'aria-hidden': true }), ` ${words}`),
    );
    const headings = ['Owner', 'State', 'Tokens', 'Pages', 'Shared'].map((heading) =>
      element('th', { scope: 'col' }, heading),
    );
    root.append(
      element(
        'div',
        { class: 'memory' },
        element(
          'p',
          {},
          'The KV cache is one pool of pages. Each request has a table of the pages that hold its tokens; requests that begin alike share them.',
        ),
        this.#words,
        this.#canvas,
        element('ul', { class: 'legend plain' }, ...legend),
        element(
          'div',
          { class: 'table-frame', role: 'region', 'aria-label': 'Requests', tabIndex: 0 },
          element('table', {}, element('thead', {}, element('tr', {}, ...headings)), this.#requests),
        ),
      ),
    );
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    this.#schedule();
  }

  /** @param {boolean} visible */
  setVisible(visible) {
    this.#visible = visible;
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (this.#visible && this.#engine) this.#update(this.#engine);
  }

  /** @param {Pageloom} engine */
  async #update(engine) {
    // An engine that has ended says so in the status bar; the picture keeps its last state.
    const snapshot = await engine.snapshot().catch(() => null);
    if (!snapshot || engine !== this.#engine || !this.#visible) return;
    this.#show(snapshot);
    this.#timer = window.setTimeout(() => this.#update(engine), POLL_MS);
  }

  /** @param {EngineSnapshot} snapshot */
  #show(snapshot) {
    const words = poolInWords(snapshot);
    this.#words.textContent = words;
    this.#canvas.setAttribute('aria-label', words);
    paintPool(this.#canvas, snapshot);
    const live = [...snapshot.running, ...snapshot.waiting];
    this.#requests.replaceChildren(...live.map((request) => requestLine(request, snapshot)));
    if (live.length === 0) {
      this.#requests.append(element('tr', {}, element('td', { colSpan: 5, class: 'empty' }, 'No request is live.')));
    }
  }
}

/**
 * @param {RequestView} request
 * @param {EngineSnapshot} snapshot
 */
function requestLine(request, { blocks }) {
  const shared = request.block_ids.filter((id) => (blocks[id]?.owners.length ?? 0) > 1).length;
  const swatch = element('span', { class: 'swatch', 'aria-hidden': true });
  swatch.style.backgroundColor = `hsl(${hueOf(request.arrival)} 62% 52%)`;
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, swatch, ` ${request.label ?? `request ${request.id}`}`),
    element('td', {}, request.state),
    element('td', { class: 'number' }, `${request.num_known}`),
    element('td', { class: 'number' }, `${request.block_ids.length}`),
    element('td', { class: 'number' }, `${shared}`),
  );
}
