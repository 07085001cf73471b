/**
 * The operators view, which needs no model: conformance and benchmarks, in this tab or on a local worker.
 * @import {LocalServer} from '../server/local_server.js'
 * @import {Target} from './target.js'
 */

import { button, element, field } from '../dom.js';
import { BenchPanel } from './bench_panel.js';
import { CheckPanel } from './check_panel.js';
import { targetsOf } from './target.js';

/** @type {Record<string, string>} */
const NAMES = { webgpu: 'native WebGPU', cpu: 'CPU', cuda: 'CUDA' };

export class OperatorsView {
  /** @type {Target[]} */
  #targets = [null];
  #where = element('select');
  #whereField = field('Run on', this.#where);
  #parts = [
    { name: 'Conformance', root: element('div', { class: 'operators' }) },
    { name: 'Benchmarks', root: element('div', { class: 'operators', hidden: true }) },
  ];
  #buttons = this.#parts.map(({ name }, index) => button(name, () => this.#showPart(index)));
  #check;
  #bench;

  /** @param {HTMLElement} root */
  constructor(root) {
    const [check, bench] = this.#parts.map(({ root }) => root);
    this.#check = new CheckPanel(/** @type {HTMLElement} */ (check));
    this.#bench = new BenchPanel(/** @type {HTMLElement} */ (bench));
    this.#where.addEventListener('change', () => this.#choose());
    const parts = element('div', { class: 'actions', role: 'group', 'aria-label': 'What is run' }, ...this.#buttons);
    root.append(
      element('div', { class: 'operator-parts' }, parts, this.#whereField),
      ...this.#parts.map(({ root }) => root),
    );
    this.#whereField.hidden = true;
    this.#showPart(0);
  }

  /** Lists the cases, the first time that the view is looked at. */
  open() {
    return this.#check.open();
  }

  /**
   * Offers the backends of a local worker, or none any more.
   * @param {LocalServer | null} server
   */
  async useServer(server) {
    this.#targets = [null, ...(server ? await targetsOf(server) : [])];
    this.#where.replaceChildren(
      ...this.#targets.map((target, index) =>
        element('option', { value: String(index) }, target ? `the worker: ${NAMES[target.backend]}` : 'this tab'),
      ),
    );
    this.#whereField.hidden = this.#targets.length === 1;
    this.#choose();
  }

  #choose() {
    const target = this.#targets[Number(this.#where.value)] ?? null;
    this.#check.useTarget(target);
    this.#bench.useTarget(target);
  }

  /** @param {number} chosen */
  #showPart(chosen) {
    for (const [index, { root }] of this.#parts.entries()) {
      root.hidden = index !== chosen;
      this.#buttons[index]?.setAttribute('aria-pressed', String(index === chosen));
    }
  }
}
