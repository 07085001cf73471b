/**
 * The models view: which model, whether it fits, how far its load is, and in plain words what went wrong.
 * @import {LoadOptions} from '../engine.js'
 * @import {Model} from '../models.js'
 */

import { acceptDrop, button, element, field } from '../dom.js';
import { Pageloom } from '../engine.js';
import { PageloomError } from '../errors.js';
import { failureBox } from '../failure_box.js';
import { requireGguf } from '../gguf_file.js';
import { inspect } from '../inspection.js';
import { InspectionPanel } from './inspection_panel.js';
import { LoadProgress } from './load_progress.js';
import { StoredList } from './stored_list.js';

export class ModelsView {
  #root;
  #onLoaded;
  #beforeLoad;
  #controls = element('fieldset', { class: 'choices' });
  #keep = element('input', { type: 'checkbox', checked: true });
  #announcement = element('p', { class: 'visually-hidden', role: 'status' });
  #progress = new LoadProgress((stage) => {
    this.#announcement.textContent = stage;
  });
  #looked = element('div');
  #outcome = element('div', { class: 'outcome' });
  #cancel = button('Cancel', () => this.cancel(), { class: 'quiet', hidden: true });
  #abort = new AbortController();
  /** @type {import('../inspection.js').Inspection | null} */
  #inspection = null;
  #stored = new StoredList({
    onLoad: ({ key }) => this.load({ model: { stored: key } }),
    onLook: ({ key, stored, url }) => this.#look(stored === null && url ? url : { stored: key }),
  });

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
  }

  /** Whether a model is being loaded, or looked at. */
  get isBusy() {
    return this.#controls.disabled;
  }

  /** Ends the load that is under way, if one is. */
  cancel() {
    this.#abort.abort();
  }

  /**
   * Closes what is loaded and loads another model. A load that is under way goes on, and a file that cannot be a model
   * closes nothing.
   * @param {LoadOptions} options
   */
  async load(options) {
    await this.#busy('Loading the model', async (signal) => {
      if (options.model instanceof File) await requireGguf(options.model);
      signal.throwIfAborted();
      this.#beforeLoad();
      this.#looked.replaceChildren();
      const engine = await Pageloom.load({
        store: this.#keep.checked,
        ...options,
        onProgress: (progress) => this.#progress.show(progress),
        signal,
      });
      this.#inspection = null;
      this.#showLoaded(engine);
      this.#onLoaded(engine);
    });
  }

  /**
   * Shows what a model takes before it is loaded.
   * @param {Model} model
   */
  async #look(model) {
    await this.#busy('Looking at the model', async (signal) => {
      if (model instanceof File) await requireGguf(model);
      this.#leave();
      const inspection = await inspect(model, { onProgress: (progress) => this.#progress.show(progress), signal });
      this.#inspection = inspection;
      const { refusal } = inspection.told;
      if (refusal?.code === 'bad_model_file') throw new PageloomError(refusal);
      this.#progress.hide();
      const panel = new InspectionPanel(inspection, {
        onLoad: (settings) => this.load({ model: inspection, ...settings }),
        onClose: () => this.#leave(),
      });
      this.#looked.replaceChildren(panel.element);
      panel.element.focus();
      this.#announcement.textContent = '';
    });
  }

  /** Ends the worker of a model that was looked at and not loaded. */
  #leave() {
    this.#inspection?.close();
    this.#inspection = null;
    this.#looked.replaceChildren();
  }

  #build() {
    const picker = element('input', { type: 'file', accept: '.gguf' });
    picker.addEventListener('change', () => {
      const [file] = picker.files ?? [];
      if (file) this.#look(file);
      picker.value = '';
    });
    const drop = element(
      'div',
      { class: 'drop' },
      element('p', {}, 'Drop a GGUF file here, or choose one. It stays on this machine.'),
      field('GGUF file', picker),
    );
    acceptDrop(drop, (file) => this.#look(file));
    this.#controls.append(
      element('legend', {}, 'Load a model'),
      element(
        'div',
        { class: 'built-in' },
        element(
          'div',
          { class: 'actions' },
          button('Load SmolLM2 135M Instruct', () => this.load({ model: 'built-in' }), { class: 'primary' }),
          button('Settings', () => this.#look('built-in'), {
            class: 'quiet',
            'aria-label': 'Settings of SmolLM2 135M Instruct',
          }),
        ),
        element('small', {}, 'The built-in model: 98 MB, English, small enough for any machine.'),
      ),
      drop,
      this.#urlForm(),
      element('label', { class: 'check' }, this.#keep, 'Keep a copy in this browser, to load it offline the next time'),
      this.#stored.element,
    );
    const runs = element(
      'div',
      { class: 'load-run' },
      this.#announcement,
      this.#progress.element,
      this.#cancel,
      this.#outcome,
      this.#looked,
    );
    this.#root.append(element('div', { class: 'load-panel' }, this.#controls, runs));
  }

  #urlForm() {
    const url = element('input', { type: 'url', required: true, placeholder: 'https://…/model.gguf' });
    const open = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#look(url.value);
    };
    return element(
      'form',
      { class: 'url-form', onsubmit: open },
      field(
        'Address of a model',
        url,
        'Read in parts where its server allows that; a download that is interrupted goes on later.',
      ),
      element('button', { type: 'submit' }, 'Look'),
    );
  }

  /**
   * Does one thing at a time, says how it went wrong if it does, and lets it be cancelled.
   * @param {string} announcement
   * @param {(signal: AbortSignal) => Promise<void>} work
   */
  async #busy(announcement, work) {
    if (this.isBusy) return;
    this.#abort = new AbortController();
    this.#controls.disabled = true;
    this.#cancel.hidden = false;
    this.#outcome.replaceChildren();
    this.#progress.clear();
    this.#announcement.textContent = announcement;
    try {
      await work(this.#abort.signal);
    } catch (error) {
      this.#leave();
      this.#showFailure(error);
    } finally {
      this.#controls.disabled = false;
      this.#cancel.hidden = true;
      this.#stored.refresh();
    }
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
      this.#progress.hide();
      this.#announcement.textContent = 'The load was cancelled';
      return;
    }
    this.#outcome.replaceChildren(failureBox(error));
  }
}
