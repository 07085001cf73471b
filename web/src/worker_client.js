/**
 * A Web Worker as the far end of the protocol.
 * @import {Reply} from './protocol.js'
 */

import { CallClient } from './call_client.js';
import { HOLDS_LOCK } from './protocol.js';

/** A worker of its own, and this end of it. */
export function startWorker() {
  const name = `pageloom-${Math.random().toString(36).slice(2)}`;
  return new WorkerClient(new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }), name);
}

export class WorkerClient extends CallClient {
  /**
   * @param {Worker} worker
   * @param {string} name  Of the lock that the worker holds as long as it lives.
   */
  constructor(worker, name) {
    super(
      (calls) => worker.postMessage(calls),
      () => worker.terminate(),
    );
    worker.onmessage = ({ data }) => {
      if (data === HOLDS_LOCK) this.#endWithLock(name);
      else this.receive(/** @type {Reply[]} */ (data));
    };
    worker.onerror = (event) => this.end(`the worker stopped: ${event.message || 'its script did not load'}`);
  }

  /**
   * A worker that the browser ends says nothing any more. Its lock is then free.
   * @param {string} name
   */
  async #endWithLock(name) {
    await navigator.locks.request(name, () => {});
    this.end('the worker stopped: the browser ended it, perhaps for want of memory');
  }
}
