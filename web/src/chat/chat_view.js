/**
 * The chat view: several chats side by side, each live while the others are.
 * @import {Pageloom} from '../engine.js'
 */

import { button, element, field } from '../dom.js';
import { ChatPane } from './chat_pane.js';

export class ChatView {
  /** @type {Pageloom | null} */
  #engine = null;
  /** @type {Set<ChatPane>} */
  #panes = new Set();
  #opened = 0;
  #grid = element('div', { class: 'chats' });
  #system = element('input', { type: 'text', value: 'You are a helpful assistant. Answer in one or two sentences.' });
  #maxTokens = element('input', { type: 'number', min: 1, value: '128', required: true });
  #temperature = element('input', { type: 'number', min: 0, max: 2, step: 0.1, value: '0.7', required: true });

  /** @param {HTMLElement} root */
  constructor(root) {
    const settings = element(
      'div',
      { class: 'chat-settings' },
      button('New chat', () => this.#open().focus(), { class: 'primary' }),
      field('System message', this.#system),
      field('Most tokens', this.#maxTokens),
      field('Temperature', this.#temperature),
    );
    root.append(settings, this.#grid);
    this.#open();
    this.#open();
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    for (const pane of this.#panes) pane.use(engine);
  }

  #open() {
    this.#opened += 1;
    const pane = new ChatPane(
      `Chat ${this.#opened}`,
      () => this.#settings(),
      () => this.#panes.delete(pane),
    );
    this.#panes.add(pane);
    this.#grid.append(pane.element);
    pane.use(this.#engine);
    return pane;
  }

  #settings() {
    return {
      system: this.#system.value.trim(),
      max_tokens: this.#maxTokens.valueAsNumber || 128,
      temperature: this.#temperature.valueAsNumber || 0,
    };
  }
}
