/**
 * One chat: its messages, what is being answered, and a box to write in.
 * @import {Pageloom} from '../engine.js'
 * @import {Message} from '../protocol.js'
 */

import { button, element } from '../dom.js';
import { errorObject } from '../errors.js';
import { errorInWords } from '../words.js';

/** @typedef {{system: string, max_tokens: number, temperature: number}} ChatSettings */

export class ChatPane {
  /** @type {Pageloom | null} */
  #engine = null;
  /** @type {Message[]} */
  #messages = [];
  /** @type {AbortController | null} */
  #answering = null;
  #title;
  #settings;
  #log = element('div', { class: 'log', role: 'log', tabIndex: 0 });
  #input;
  #send = button('Send', () => this.#submit(), { class: 'primary' });
  #stop = button('Stop', () => this.#answering?.abort());

  /**
   * @param {string} title
   * @param {() => ChatSettings} settings
   * @param {() => void} onClose
   */
  constructor(title, settings, onClose) {
    this.#title = title;
    this.#settings = settings;
    this.#input = element('textarea', { rows: 2, placeholder: 'Write a message', 'aria-label': `Message in ${title}` });
    this.#log.setAttribute('aria-label', title);
    this.#input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    this.#input.addEventListener('input', () => this.#showState());
    const close = button('Close', () => this.#close(onClose), { class: 'quiet', 'aria-label': `Close ${title}` });
    this.element = element(
      'section',
      { class: 'chat', 'aria-label': title },
      element('header', {}, element('h2', {}, title), close),
      this.#log,
      element('div', { class: 'compose' }, this.#input, element('div', { class: 'actions' }, this.#stop, this.#send)),
    );
    this.#showState();
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    this.#showState();
  }

  focus() {
    this.#input.focus();
  }

  /** @param {() => void} onClose */
  #close(onClose) {
    this.#answering?.abort();
    this.element.remove();
    onClose();
  }

  async #submit() {
    const content = this.#input.value.trim();
    const engine = this.#engine;
    if (!engine || !content || this.#answering) return;
    this.#input.value = '';
    this.#messages.push({ role: 'user', content });
    this.#addBubble('user').textContent = content;
    const bubble = this.#addBubble('assistant');
    this.#answering = new AbortController();
    this.#showState();
    let answer = '';
    try {
      for await (const piece of this.#answer(engine, this.#answering.signal)) {
        answer += piece;
        this.#append(bubble, piece);
      }
    } catch (error) {
      if (this.#answering.signal.aborted) bubble.append(element('em', {}, ' (stopped)'));
      else bubble.append(failureNote(error));
    }
    this.#messages.push({ role: 'assistant', content: answer });
    bubble.removeAttribute('aria-busy');
    this.#answering = null;
    this.#showState();
  }

  /**
   * @param {Pageloom} engine
   * @param {AbortSignal} signal
   */
  async *#answer(engine, signal) {
    const { system, ...sampling } = this.#settings();
    const opening = system ? [{ role: 'system', content: system }] : [];
    const stream = await engine.chat.completions.create(
      { messages: [...opening, ...this.#messages], stream: true, ...sampling },
      { signal, label: this.#title },
    );
    for await (const chunk of stream) {
      const piece = chunk.choices[0]?.delta.content;
      if (piece) yield piece;
    }
  }

  /** @param {'user' | 'assistant'} role */
  #addBubble(role) {
    const bubble = element('div', { class: `bubble ${role}` });
    if (role === 'assistant') bubble.setAttribute('aria-busy', 'true');
    this.#log.append(bubble);
    this.#log.scrollTop = this.#log.scrollHeight;
    return bubble;
  }

  /**
   * Follows the end of the log only while the reader is there.
   * @param {HTMLElement} bubble
   * @param {string} piece
   */
  #append(bubble, piece) {
    const log = this.#log;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    bubble.append(piece);
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  #showState() {
    this.#send.disabled = !this.#engine || this.#answering !== null || this.#input.value.trim() === '';
    this.#stop.disabled = this.#answering === null;
  }
}

/** @param {unknown} error */
function failureNote(error) {
  const { title, detail } = errorInWords(errorObject(error));
  return element('p', { class: 'row-error', role: 'alert' }, `${title}: ${detail}`);
}
