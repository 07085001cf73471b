/**
 * The page's end of the protocol: calls out, replies in.
 * @import {Call, JobDelta, JobFields, JobResult, Reply} from './protocol.js'
 */

import { PageloomError } from './errors.js';
import { HOLDS_LOCK } from './protocol.js';

/** A worker of its own, and this end of it. */
export function startWorker() {
  const name = `pageloom-${Math.random().toString(36).slice(2)}`;
  return new WorkerClient(new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }), name);
}

/**
 * @typedef {object} Pending
 * @property {(result: any) => void} resolve
 * @property {(error: unknown) => void} reject
 * @property {(event: any) => void} onEvent
 */

export class WorkerClient {
  #nextId = 1;
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #worker;
  /** @type {PageloomError | null} */
  #ended = null;

  /**
   * @param {Worker} worker
   * @param {string} name  Of the lock that the worker holds as long as it lives.
   */
  constructor(worker, name) {
    this.#worker = worker;
    worker.onmessage = ({ data }) => {
      if (data === HOLDS_LOCK) this.#endWithLock(name);
      else for (const reply of /** @type {Reply[]} */ (data)) this.#receive(reply);
    };
    worker.onerror = (event) => this.#end(`the worker stopped: ${event.message || 'its script did not load'}`);
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
   * Several jobs in one message, so that the engine plans its first step with all of them.
   * @param {{fields: JobFields, onDelta?: (delta: JobDelta) => void}[]} jobs
   * @returns {{id: number, result: Promise<JobResult>}[]}
   */
  generate(jobs) {
    const prepared = jobs.map(({ fields, onDelta }) => this.#prepare('generate', fields, onDelta ?? (() => {})));
    this.#post(prepared.map(([call]) => call));
    return prepared.map(([call, result]) => ({ id: call.id, result }));
  }

  /**
   * A worker that the browser ends says nothing any more. Its lock is then free.
   * @param {string} name
   */
  async #endWithLock(name) {
    await navigator.locks.request(name, () => {});
    if (!this.#ended) this.#end('the worker stopped: the browser ended it, perhaps for want of memory');
  }

  /** Ends the worker; what is pending is rejected. */
  close() {
    this.#worker.terminate();
    this.#end('the engine is closed');
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
      this.#worker.postMessage(calls);
    } catch (error) {
      for (const { id } of calls) this.#settle(id)?.reject(error);
    }
  }

  /** @param {Reply} reply */
  #receive(reply) {
    if ('event' in reply) this.#pending.get(reply.id)?.onEvent(reply.event);
    else if ('result' in reply) this.#settle(reply.id)?.resolve(reply.result);
    else this.#settle(reply.id)?.reject(new PageloomError(reply.error));
  }

  /** @param {number} id */
  #settle(id) {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }

  /** @param {string} message */
  #end(message) {
    this.#ended = new PageloomError({ message, type: 'server_error', param: null, code: 'engine_closed' });
    for (const id of [...this.#pending.keys()]) this.#settle(id)?.reject(this.#ended);
  }
}
