/**
 * The conversations that this browser keeps. What cannot be kept is said once, and the chats go on without.
 * @import {Conversation} from './tree.js'
 */

import { errorObject } from '../errors.js';
import { saved } from '../saved.js';
import { isWhole, restored } from './tree.js';

/** While an answer comes, its conversation is written no more often than this. */
const SAVE_MS = 1000;

export class Conversations {
  /** @type {Map<string, number>} Timers of writes to come. */
  #due = new Map();
  #onFailure;

  /** @param {(message: string) => void} onFailure */
  constructor(onFailure) {
    this.#onFailure = onFailure;
  }

  /**
   * The one that changed last comes first. Damaged ones are left where they are.
   * @returns {Promise<Conversation[]>}
   */
  async load() {
    const found = await this.#tried(saved.all('chats'));
    return (found ?? [])
      .filter(isWhole)
      .map(restored)
      .sort((a, b) => b.changed.localeCompare(a.changed));
  }

  /**
   * @param {Conversation} conversation  One without a message is not worth keeping.
   */
  async save(conversation) {
    clearTimeout(this.#due.get(conversation.id));
    this.#due.delete(conversation.id);
    if (conversation.nodes.length > 0) await this.#tried(saved.put('chats', conversation));
  }

  /**
   * Writes it soon, together with what else changes until then.
   * @param {Conversation} conversation
   */
  saveSoon(conversation) {
    if (this.#due.has(conversation.id)) return;
    const timer = window.setTimeout(() => this.save(conversation), SAVE_MS);
    this.#due.set(conversation.id, timer);
  }

  /** @param {Conversation} conversation */
  async remove({ id }) {
    clearTimeout(this.#due.get(id));
    this.#due.delete(id);
    await this.#tried(saved.remove('chats', id));
  }

  /**
   * @template Result
   * @param {Promise<Result>} work
   * @returns {Promise<Result | undefined>}
   */
  async #tried(work) {
    try {
      return await work;
    } catch (error) {
      this.#onFailure(errorObject(error).message);
      return undefined;
    }
  }
}
