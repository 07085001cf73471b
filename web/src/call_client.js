/**
 * The page's end of the protocol, whatever carries it: calls out, replies in.
 * @import {Call, JobDelta, JobFields, JobResult, Reply} from './protocol.js'
 */

import { PageloomError } from './errors.js';

/**
 * @typedef {object} Pending
 * @property {(result: any) => void} resolve
 * @property {(error: unknown) => void} reject
 * @property {(event: any) => void} onEvent
 */

export class CallClient {
  #nextId = 1;
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #send;
  #stop;
  /** @type {PageloomError | null} */
  #ended = null;

  /**
   * @param {(calls: Call[]) => void} send  May throw; the calls are then rejected.
   * @param {() => void} stop  Ends the far end.
   */
  constructor(send, stop) {
    this.#send = send;
    this.#stop = stop;
  }

  /** What the engine puts before the id of a job of this client's. */
  prefix = '';

  get hasEnded() {
    return this.#ended !== null;
  }

  /**
   * One call.
   * @param {string} method
   * @param {object} [params]
   * @param {(event: any) => void} [onEvent]
   * @returns {Promise<any>}
   */
  call(method, params = {}, onEvent = () => {}) {
    const [call, promise] = this.#prepare(method, params, onEvent);
    this.#post([call]);
    return promise;
  }

  /**
   * One call without which this client is of no use: its failure closes the client, and so does the signal, with whose
   * reason the call then rejects.
   * @param {string} method
   * @param {object} params
   * @param {{onEvent?: ((event: any) => void) | undefined, signal?: AbortSignal | undefined}} [options]
   * @returns {Promise<any>}
   */
  async callOrClose(method, params, { onEvent, signal } = {}) {
    const close = () => this.close();
    signal?.addEventListener('abort', close, { once: true });
    try {
      signal?.throwIfAborted();
      return await this.call(method, params, onEvent);
    } catch (error) {
      this.close();
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', close);
    }
  }

  /**
   * Several jobs in one message, so that the engine plans its first step with all of them.
   * @param {{fields: JobFields, onDelta?: (delta: JobDelta) => void}[]} jobs
   * @returns {{id: number, result: Promise<JobResult>}[]}
   */
  generate(jobs) {
    const prepared = jobs.map(({ fields, onDelta }) => this.#prepare('generate', fields, onDelta ?? (() => {})));
    this.#post(prepared.map(([call]) => call));
    return prepared.map(([call, result]) => ({ id: call.id, result }));
  }

  /** Ends the far end; what is pending is rejected. */
  close() {
    this.#stop();
    this.end('the engine is closed');
  }

  /** @param {Reply[]} replies */
  receive(replies) {
    for (const reply of replies) {
      if ('event' in reply) this.#pending.get(reply.id)?.onEvent(reply.event);
      else if ('result' in reply) this.#settle(reply.id)?.resolve(reply.result);
      else this.#settle(reply.id)?.reject(new PageloomError(reply.error));
    }
  }

  /**
   * Rejects calls that did not reach the far end.
   * @param {Call[]} calls
   * @param {unknown} error
   */
  reject(calls, error) {
    for (const { id } of calls) this.#settle(id)?.reject(error);
  }

  /**
   * Takes down that the far end says nothing any more.
   * @param {string} message
   */
  end(message) {
    this.#ended ??= new PageloomError({ message, type: 'server_error', param: null, code: 'engine_closed' });
    for (const id of [...this.#pending.keys()]) this.#settle(id)?.reject(this.#ended);
  }

  /**
   * @param {string} method
   * @param {object} params
   * @param {(event: any) => void} onEvent
   * @returns {[Call, Promise<any>]}
   */
  #prepare(method, params, onEvent) {
    const id = this.#nextId++;
    const promise = new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject, onEvent }));
    return [{ id, method, params }, promise];
  }

  /** @param {Call[]} calls */
  #post(calls) {
    try {
      if (this.#ended) throw this.#ended;
      this.#send(calls);
    } catch (error) {
      this.reject(calls, error);
    }
  }

  /** @param {number} id */
  #settle(id) {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }
}
