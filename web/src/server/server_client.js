/**
 * A local server as the far end of the protocol: one stream of replies, and calls posted beside it.
 * @import {Call, LoadedModel} from '../protocol.js'
 * @import {LocalServer} from './local_server.js'
 */

import { CallClient } from '../call_client.js';
import { PageloomError } from '../errors.js';
import { serverEvents } from './events.js';

/** Calls that a server takes in the order in which they are made: what is stopped has to be there. */
const IN_ORDER = ['generate', 'abort'];
/** Of one message: a server reads 4 MiB, and a character takes three bytes at most. */
const MOST_CHARACTERS = 1_000_000;
/** Of one message: a server takes no more that are no jobs. */
const MOST_ABORTS = 100;

export class ServerClient extends CallClient {
  #server;
  #path = '';
  /** @type {Call[]} Those in order that have not been posted. */
  #waiting = [];
  #isPosting = false;
  #left = new AbortController();

  /** @param {LocalServer} server */
  constructor(server) {
    super(
      (calls) => this.#take(calls),
      () => this.#left.abort(),
    );
    this.#server = server;
  }

  /**
   * Opens a session; its jobs end with it.
   * @param {AbortSignal} [signal]  Gives up.
   * @returns {Promise<LoadedModel>}
   */
  async open(signal) {
    signal?.throwIfAborted();
    const giveUp = () => this.close();
    signal?.addEventListener('abort', giveUp, { once: true });
    const response = await this.#server.ask('/v1/session', { post: true, signal: this.#left.signal });
    const events = serverEvents(response);
    const { value } = await events.next();
    signal?.removeEventListener('abort', giveUp);
    if (!value) throw stopping();
    this.#path = `/v1/session/${value.session}`;
    this.prefix = value.prefix;
    this.#listen(events);
    return { size: 0, stored: null, ...value.model };
  }

  /** @param {AsyncGenerator<any>} events */
  async #listen(events) {
    try {
      for await (const replies of events) this.receive(replies);
    } catch {
      // A connection that breaks ends the session as its last event does.
    }
    this.end(`the local worker at ${this.#server.address} stopped`);
  }

  /** @param {Call[]} calls */
  #take(calls) {
    if (!calls.every(({ method }) => IN_ORDER.includes(method))) {
      this.#post(calls);
      return;
    }
    this.#waiting.push(...calls);
    if (!this.#isPosting) this.#postWaiting();
  }

  /** Posts one message after another; what is called meanwhile goes together. */
  async #postWaiting() {
    this.#isPosting = true;
    while (this.#waiting.length > 0 && !this.hasEnded) await this.#post(this.#nextMessage());
    this.#isPosting = false;
  }

  #nextMessage() {
    let [count, characters, aborts] = [0, 0, 0];
    for (const call of this.#waiting) {
      characters += JSON.stringify(call).length;
      aborts += call.method === 'abort' ? 1 : 0;
      if (count > 0 && (characters > MOST_CHARACTERS || aborts > MOST_ABORTS)) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }

  /** @param {Call[]} calls */
  async #post(calls) {
    try {
      await this.#server.ask(this.#path, { body: { calls }, signal: this.#left.signal });
    } catch (error) {
      if (!this.hasEnded) this.reject(calls, error);
    }
  }
}

function stopping() {
  const message = 'the local worker is stopping';
  return new PageloomError({ message, type: 'server_error', param: null, code: 'no_answer' });
}
