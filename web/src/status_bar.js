/**
 * The header's figures, asked of the engine while the page is looked at.
 * @import {Pageloom} from './engine.js'
 * @import {AdapterInfo} from './protocol.js'
 */

import { element } from './dom.js';
import { RecentRate } from './recent_rate.js';

const POLL_MS = 500;

export class StatusBar {
  #root;
  #timer = 0;
  /** @type {Pageloom | null} */
  #engine = null;
  #rate = new RecentRate();

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.clear();
  }

  clear() {
    clearInterval(this.#timer);
    this.#engine = null;
    this.#show([['Model', 'none loaded']]);
  }

  /** @param {Pageloom} engine */
  follow(engine) {
    clearInterval(this.#timer);
    this.#engine = engine;
    this.#rate.reset();
    let isAsking = false;
    const update = async () => {
      if (document.hidden || isAsking) return;
      isAsking = true;
      const stats = await engine.stats().catch(() => null);
      isAsking = false;
      if (engine !== this.#engine) return;
      // What ends an engine is told by `engine.lost`; the figures then stay.
      if (stats) this.#showStats(engine, stats);
      else clearInterval(this.#timer);
    };
    update();
    this.#timer = window.setInterval(update, POLL_MS);
  }

  /**
   * @param {Pageloom} engine
   * @param {import('./protocol.js').EngineStats} stats
   */
  #showStats(engine, stats) {
    this.#show([
      ['Model', engine.model.name.replace(/\.gguf$/i, '')],
      ['Adapter', adapterInWords(engine.model.adapter)],
      ['Tokens/s', this.#rate.update(stats).toFixed(1)],
      ['Running', `${stats.running}`],
      ['Queued', `${stats.waiting}`],
      ['Pages', `${stats.used_blocks} of ${stats.num_blocks}`],
    ]);
  }

  /** @param {[string, string][]} figures */
  #show(figures) {
    const old = this.#root.children;
    const same = old.length === figures.length;
    if (!same) {
      this.#root.replaceChildren(
        ...figures.map(([name]) => element('div', {}, element('dt', {}, name), element('dd'))),
      );
    }
    for (const [index, [, value]] of figures.entries()) {
      const cell = /** @type {HTMLElement} */ (old[index]?.lastElementChild);
      if (cell.textContent !== value) cell.textContent = value;
    }
  }
}

/** @param {AdapterInfo} adapter */
export function adapterInWords(adapter) {
  const name = adapter.description || [adapter.vendor, adapter.architecture].filter(Boolean).join(' ') || 'GPU';
  return adapter.adapter_class === 'software' ? `${name} (software adapter: slow)` : name;
}
