/**
 * The models that this browser keeps, whole or in part, and the room that it has for more.
 * @import {StoredModel} from '../protocol.js'
 */

import { button, element } from '../dom.js';
import { errorObject } from '../errors.js';
import { storedModels } from '../models.js';
import { bytesInWords } from '../words.js';

export class StoredList {
  #actions;
  #list = element('ul', { class: 'plain' });
  #room = element('p', { class: 'summary' });
  #persist = button('Ask it to keep them', () => this.#askToPersist(), { class: 'quiet' });

  /** @param {{onLoad: (model: StoredModel) => void, onLook: (model: StoredModel) => void}} actions */
  constructor(actions) {
    this.#actions = actions;
    this.element = element(
      'div',
      { class: 'kept-models' },
      element('p', { class: 'field-label' }, 'Kept in this browser'),
      this.#list,
      element('div', { class: 'room' }, this.#room, this.#persist),
    );
    this.refresh();
  }

  /** Reads again what the browser keeps, and how much room it has. */
  async refresh() {
    try {
      const models = await storedModels.list();
      const lines = models.map((model) => this.#line(model));
      this.#list.replaceChildren(...(lines.length ? lines : [element('li', { class: 'empty' }, 'No model yet.')]));
      await this.#showRoom();
    } catch (error) {
      this.#list.replaceChildren();
      this.#room.textContent = `Nothing can be kept in this browser here: ${errorObject(error).message}`;
      this.#persist.hidden = true;
    }
  }

  /** @param {StoredModel} model */
  #line(model) {
    const { key, name, size, done, stored } = model;
    const whole = stored !== null && done === size;
    const since = stored ? new Date(stored).toLocaleDateString() : '';
    const words = whole
      ? `${bytesInWords(size)}, ${since}`
      : `${bytesInWords(done)} of ${bytesInWords(size)} downloaded`;
    const { onLoad, onLook } = this.#actions;
    const remove = async () => {
      await storedModels.remove(key);
      await this.refresh();
    };
    const labelled = (/** @type {string} */ label) => ({ 'aria-label': `${label} ${name}` });
    return element(
      'li',
      { class: 'stored' },
      element('span', {}, `${name} `, element('small', {}, words)),
      ...(whole
        ? [
            button('Load', () => onLoad(model), labelled('Load this copy of')),
            button('Settings', () => onLook(model), { class: 'quiet', ...labelled('Settings of') }),
          ]
        : [button('Continue', () => onLook(model), labelled('Continue the download of'))]),
      button('Remove', remove, { class: 'quiet', ...labelled('Remove') }),
    );
  }

  async #showRoom() {
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    const lasting = await navigator.storage.persisted();
    const kept = `By its own estimate this browser has room for ${bytesInWords(Math.max(0, quota - usage))} more`;
    this.#room.textContent = lasting
      ? `${kept}, and keeps it until you remove it.`
      : `${kept}. It may clear it when the disk runs full.`;
    this.#persist.hidden = lasting;
  }

  async #askToPersist() {
    const granted = await navigator.storage.persist();
    await this.#showRoom();
    if (!granted) {
      this.#room.textContent += ' It did not agree to keep it; it may, once the page is used more or installed.';
      this.#persist.hidden = true;
    }
  }
}
