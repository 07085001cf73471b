/**
 * The conversations that this browser keeps, for one tab of the page. Why they are not kept is said, and the chats go on.
 * @import {Conversation} from './tree.js'
 */

import { errorObject } from '../errors.js';
import { own, saved } from '../saved.js';
import { counted } from '../words.js';
import { isWhole, restored } from './tree.js';

const LOCK = 'pageloom-chats';
/** While an answer comes, its conversation is written no more often than this. */
const SAVE_MS = 1000;

export class Conversations {
  /** @type {Map<string, number>} Timers of writes to come. */
  #due = new Map();
  /** @type {Set<string>} Ids; an answer that ends after its chat was removed does not bring that back. */
  #removed = new Set();
  #owned = own(LOCK);
  #onFailure;

  /** @param {(message: string) => void} onFailure */
  constructor(onFailure) {
    this.#onFailure = onFailure;
  }

  /**
   * The one that changed last comes first. Damaged ones are left where they are, which is said.
   * @returns {Promise<Conversation[]>}
   */
  async load() {
    const found = (await this.#tried(() => saved.all('chats'))) ?? [];
    const whole = found.filter(isWhole);
    if (!(await this.#owned)) {
      this.#onFailure('Another tab of this page keeps the chats; this tab’s are gone once it closes.');
    }
    if (whole.length < found.length) {
      const damaged = counted(found.length - whole.length, 'chat');
      this.#onFailure(`${damaged} of this browser’s could not be read and are left where they are.`);
    }
    return whole.map(restored).sort((a, b) => b.changed.localeCompare(a.changed));
  }

  /**
   * @param {Conversation} conversation  One that was removed, or is without a message, is not worth keeping.
   */
  async save(conversation) {
    const { id, nodes } = conversation;
    clearTimeout(this.#due.get(id));
    this.#due.delete(id);
    if (nodes.length > 0 && !this.#removed.has(id)) await this.#tried(() => saved.put('chats', conversation));
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
    this.#removed.add(id);
    await this.#tried(() => saved.remove('chats', id));
  }

  /**
   * Keeps one again that was removed.
   * @param {Conversation} conversation
   */
  async bringBack(conversation) {
    this.#removed.delete(conversation.id);
    await this.save(conversation);
  }

  /**
   * Undefined where the work failed, or another tab keeps the chats.
   * @template Result
   * @param {() => Promise<Result>} work
   * @returns {Promise<Result | undefined>}
   */
  async #tried(work) {
    try {
      return (await this.#owned) ? await work() : undefined;
    } catch (error) {
      this.#onFailure(errorObject(error).message);
      return undefined;
    }
  }
}
