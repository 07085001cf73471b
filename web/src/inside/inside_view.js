/**
 * What the engine does: its pool of pages, its steps, its speed and its memory; asked of it while the view is looked at.
 * @import {Pageloom} from '../engine.js'
 * @import {EngineSnapshot, EngineStats} from '../protocol.js'
 */

import { element } from '../dom.js';
import { RecentRate } from '../recent_rate.js';
import { EndedTable } from './ended_table.js';
import { FigureTiles } from './figure_tiles.js';
import { MemoryBar } from './memory_bar.js';
import { PoolMap } from './pool_map.js';
import { RequestTable } from './request_table.js';
import { Timeline } from './timeline.js';

const POLL_MS = 350;
const SLOWEST_POLL_MS = 5000;
/** Looking takes no more than this share of the time: it is taken from the answers. */
const SHARE = 0.1;

export class InsideView {
  /** @type {Pageloom | null} */
  #engine = null;
  #timer = 0;
  #visible = false;
  #rate = new RecentRate();
  #pace = element('p', { class: 'summary' });
  #tiles = new FigureTiles();
  #map = new PoolMap();
  #requests = new RequestTable((owner) => this.#map.mark(owner));
  #timeline = new Timeline();
  #memory = new MemoryBar();
  #ended = new EndedTable();

  /** @param {HTMLElement} root */
  constructor(root) {
    const card = (/** @type {string} */ heading, /** @type {string} */ words, /** @type {HTMLElement} */ content) =>
      element(
        'section',
        { class: 'card' },
        element('h2', {}, heading),
        element('p', { class: 'summary' }, words),
        content,
      );
    root.append(
      element(
        'div',
        { class: 'inside' },
        this.#tiles.element,
        this.#pace,
        card(
          'Pages',
          'The KV cache is one pool of pages. Each request has a table of the pages that hold its tokens; requests that begin alike share them.',
          element('div', { class: 'pool-and-requests' }, this.#map.element, this.#requests.element),
        ),
        card(
          'Steps',
          'Each step computes one token of every running answer, and fills the rest of its budget with new prompts.',
          this.#timeline.element,
        ),
        card('Memory', 'What the model and its pool of pages take of the GPU.', this.#memory.element),
        card('Lately ended', 'The requests that ended last, the newest first.', this.#ended.element),
      ),
    );
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    this.#rate.reset();
    if (!engine) {
      this.#pace.textContent = '';
      this.#map.clear();
      this.#requests.show(null);
    }
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
    // An engine that has ended says so in a notice; the picture keeps its last state.
    const told = document.hidden ? null : await Promise.all([engine.snapshot(), engine.stats()]).catch(() => undefined);
    if (told === undefined || engine !== this.#engine || !this.#visible) return;
    if (told) this.#show(engine, ...told);
    const pause = Math.min(SLOWEST_POLL_MS, Math.max(POLL_MS, (told?.[0].milliseconds ?? 0) / SHARE));
    if (told) this.#showPace(engine, pause);
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.#update(engine), pause);
  }

  /**
   * @param {Pageloom} engine
   * @param {EngineSnapshot} snapshot
   * @param {EngineStats} stats
   */
  #show(engine, snapshot, stats) {
    this.#tiles.show(snapshot, stats, this.#rate.update(stats));
    this.#map.show(snapshot);
    this.#requests.show(snapshot);
    this.#timeline.show(snapshot.steps);
    this.#memory.show(engine.model.memory, snapshot);
    this.#ended.show(snapshot.ended);
  }

  /**
   * @param {Pageloom} engine
   * @param {number} pause
   */
  #showPace({ model: { adapter } }, pause) {
    const slow =
      adapter.adapter_class === 'software'
        ? 'A software adapter computes here, on the CPU: a GPU is many times as fast. '
        : '';
    const rare =
      pause > 2 * POLL_MS
        ? `To leave the time to the answers, this view looks every ${(pause / 1000).toFixed(1)} s.`
        : '';
    this.#pace.textContent = slow + rare;
  }
}
