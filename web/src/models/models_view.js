/**
 * The model view: which model, how far its load is, and in plain words what went wrong.
 * @import {LoadOptions} from '../engine.js'
 * @import {LoadProgress} from '../protocol.js'
 */

import { acceptDrop, button, element, field } from '../dom.js';
import { Pageloom } from '../engine.js';
import { errorObject } from '../errors.js';
import { requireGguf } from '../gguf_file.js';
import { storedModels } from '../models.js';
import { bytesInWords, errorInWords } from '../words.js';

/** @type {[LoadProgress['stage'], string, 'bytes' | 'count'][]} */
const STAGES = [
  ['python', 'Start Python', 'count'],
  ['download', 'Fetch the model', 'bytes'],
  ['header', 'Read its header', 'bytes'],
  ['weights', 'Weights to the GPU', 'bytes'],
  ['compile', 'Compile programs', 'count'],
  ['store', 'Keep a copy in this browser', 'bytes'],
];

export class ModelsView {
  #root;
  #onLoaded;
  #beforeLoad;
  #controls = element('fieldset', { class: 'choices' });
  #stored = element('ul', { class: 'plain' });
  #copies = element('div', {}, element('p', { class: 'field-label' }, 'Copies kept in this browser'), this.#stored);
  #keep = element('input', { type: 'checkbox', checked: true });
  #room = element('span');
  #progress = element('ol', { class: 'stages plain', hidden: true });
  #announcement = element('p', { class: 'visually-hidden', role: 'status' });
  #outcome = element('div', { class: 'outcome' });
  #cancel = button('Cancel', () => this.#abort.abort(), { class: 'quiet', hidden: true });
  #abort = new AbortController();

  /**
   * @param {HTMLElement} root
   * @param {() => void} beforeLoad  Closes what is loaded now.
   * @param {(engine: Pageloom) => void} onLoaded
   */
  constructor(root, beforeLoad, onLoaded) {
    this.#root = root;
    this.#beforeLoad = beforeLoad;
    this.#onLoaded = onLoaded;
    this.#build();
    this.refresh();
  }

  /** Reads again what the browser keeps, and how much room it has. */
  async refresh() {
    const models = await storedModels.list().catch(() => []);
    this.#stored.replaceChildren(
      ...models.map(({ key, name, size }) =>
        element(
          'li',
          { class: 'stored' },
          element('span', {}, `${name} `, element('small', {}, bytesInWords(size))),
          button('Load this copy', () => this.load({ model: { stored: key } }), {
            'aria-label': `Load this copy of ${name}`,
          }),
          button('Remove', () => storedModels.remove(key).then(() => this.refresh()), {
            class: 'quiet',
            'aria-label': `Remove ${name}`,
          }),
        ),
      ),
    );
    this.#copies.hidden = models.length === 0;
    const { quota = 0, usage = 0 } = (await navigator.storage?.estimate()) ?? {};
    this.#room.textContent = `Keep a copy in this browser (room for ${bytesInWords(Math.max(0, quota - usage))})`;
  }

  /**
   * Closes what is loaded and loads another model. A load that is under way goes on, and a file that cannot be a model
   * closes nothing.
   * @param {LoadOptions} options
   */
  async load(options) {
    if (this.#controls.disabled) return;
    this.#abort = new AbortController();
    this.#showBusy(true);
    try {
      if (options.model instanceof File) await requireGguf(options.model);
      this.#beforeLoad();
      const engine = await Pageloom.load({
        store: this.#keep.checked,
        ...options,
        onProgress: (progress) => this.#showProgress(progress),
        signal: this.#abort.signal,
      });
      this.#showLoaded(engine);
      this.#onLoaded(engine);
    } catch (error) {
      this.#showFailure(error);
    } finally {
      this.#showBusy(false);
      this.refresh();
    }
  }

  #build() {
    const picker = element('input', { type: 'file', accept: '.gguf' });
    picker.addEventListener('change', () => {
      const [file] = picker.files ?? [];
      if (file) this.load({ model: file });
      picker.value = '';
    });
    const drop = element(
      'div',
      { class: 'drop' },
      element('p', {}, 'Drop a GGUF file here, or choose one. It stays on this machine.'),
      field('GGUF file', picker),
    );
    acceptDrop(drop, (file) => this.load({ model: file }));
    this.#controls.append(
      element('legend', {}, 'Load a model'),
      element(
        'div',
        { class: 'built-in' },
        button('Load SmolLM2 135M Instruct', () => this.load({ model: 'built-in' }), { class: 'primary' }),
        element('small', {}, 'The built-in model: 98 MB, English, small enough for any machine.'),
      ),
      drop,
      this.#copies,
      element('label', { class: 'check' }, this.#keep, this.#room),
    );
    const runs = element('div', { class: 'load-run' }, this.#announcement, this.#progress, this.#cancel, this.#outcome);
    this.#root.append(element('div', { class: 'load-panel' }, this.#controls, runs));
  }

  /** @param {boolean} busy */
  #showBusy(busy) {
    this.#controls.disabled = busy;
    this.#cancel.hidden = !busy;
    if (!busy) return;
    this.#outcome.replaceChildren();
    this.#progress.hidden = false;
    this.#progress.replaceChildren();
    this.#announcement.textContent = 'Loading the model';
  }

  /** @param {LoadProgress} progress */
  #showProgress({ stage, done, total }) {
    const [, label, unit] = /** @type {(typeof STAGES)[number]} */ (STAGES.find(([name]) => name === stage));
    let line = this.#progress.querySelector(`[data-stage=${stage}]`);
    if (!line) {
      // A stage that is too short to measure has ended when the next one starts.
      for (const before of this.#progress.querySelectorAll('[data-unmeasured]')) before.classList.add('complete');
      line = element(
        'li',
        { 'data-stage': stage },
        element('span', {}, label),
        element('progress', { 'aria-label': label }),
        element('span', { class: 'amount' }),
      );
      this.#progress.append(line);
      this.#announcement.textContent = label;
    }
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

  /** @param {Pageloom} engine */
  #showLoaded(engine) {
    const { name, warnings } = engine.model;
    this.#announcement.textContent = `${name} is ready`;
    this.#outcome.replaceChildren(
      element('p', { class: 'good' }, `${name} is ready.`),
      ...warnings.map((warning) => element('p', { class: 'warning' }, warning)),
    );
  }

  /** @param {unknown} error */
  #showFailure(error) {
    if (this.#abort.signal.aborted) {
      this.#progress.hidden = true;
      this.#announcement.textContent = 'The load was cancelled';
      return;
    }
    const { title, advice, detail } = errorInWords(errorObject(error));
    this.#outcome.replaceChildren(
      element(
        'div',
        { class: 'failure', role: 'alert' },
        element('h2', {}, title),
        element('p', {}, advice),
        element('p', { class: 'detail' }, detail),
      ),
    );
  }
}
