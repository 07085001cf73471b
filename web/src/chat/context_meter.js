/**
 * How much of the model's context a chat takes, with what is being written; counted by the engine.
 * @import {Pageloom} from '../engine.js'
 * @import {Conversation} from './tree.js'
 */

import { element } from '../dom.js';
import { contextState } from './context.js';
import { messagesTo } from './tree.js';

const WAIT_MS = 250;

export class ContextMeter {
  element = element('div', { class: 'context', hidden: true });
  isFull = false;
  #conversation;
  #onChange;
  #timer = 0;
  #bar = element('meter', { min: 0, max: 1, 'aria-label': 'Context used' });
  #used = element('span', { class: 'number' });
  #advice = element('span', { class: 'advice', role: 'status' });

  /**
   * @param {Conversation} conversation
   * @param {() => void} onChange
   */
  constructor(conversation, onChange) {
    this.#conversation = conversation;
    this.#onChange = onChange;
    this.element.append(this.#bar, this.#used, this.#advice);
  }

  /**
   * Counts once no more changes come for a moment.
   * @param {Pageloom | null} engine
   * @param {number} last  The message up to which the conversation counts.
   * @param {string} draft
   */
  measure(engine, last, draft) {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.#count(engine, last, draft), WAIT_MS);
  }

  /**
   * @param {Pageloom | null} engine
   * @param {number} last
   * @param {string} draft
   */
  async #count(engine, last, draft) {
    const timer = this.#timer;
    const messages = messagesTo(this.#conversation, last);
    if (draft.trim()) messages.push({ role: 'user', content: draft.trim() });
    // A template may refuse what cannot be sent yet, such as a conversation without a message.
    const counting = engine && messages.some(({ role }) => role !== 'system') ? engine.countTokens({ messages }) : null;
    const tokens = await counting?.catch(() => null);
    if (timer !== this.#timer) return;
    this.element.hidden = typeof tokens !== 'number';
    this.isFull = false;
    if (engine && typeof tokens === 'number') this.#show(tokens, engine.model.context_length);
    this.#onChange();
  }

  /**
   * @param {number} tokens
   * @param {number} contextLength
   */
  #show(tokens, contextLength) {
    const { level, used, advice } = contextState(tokens, contextLength, this.#conversation.settings.max_tokens ?? 1);
    this.isFull = level === 'full';
    this.#bar.max = contextLength;
    this.#bar.value = Math.min(tokens, contextLength);
    this.#used.textContent = used;
    if (this.#advice.textContent !== advice) this.#advice.textContent = advice;
    this.element.classList.toggle('tight', level !== 'roomy');
  }
}
