/**
 * The jobs of one client: started, stopped, and known by the names that callers gave them.
 * @import {CallClient} from './call_client.js'
 * @import {JobDelta, JobFields, JobResult} from './protocol.js'
 */

import { PageloomError } from './errors.js';

/** So many jobs that have ended keep their labels. */
const LABELS_KEPT = 1000;

/**
 * @typedef {object} Job
 * @property {JobFields} fields
 * @property {(delta: JobDelta) => void} [onDelta]
 * @property {AbortSignal} [signal]  Stops it.
 * @property {string} [label]
 */

export class Jobs {
  #client;
  /** @type {Map<number, string>} The labels of jobs, those that ended long ago forgotten. */
  #labels = new Map();

  /** @param {CallClient} client */
  constructor(client) {
    this.#client = client;
  }

  /**
   * Starts jobs together.
   * @param {Job[]} jobs
   * @returns {{id: number, result: Promise<JobResult>}[]}
   */
  start(jobs) {
    const started = this.#client.generate(jobs.map(({ fields, onDelta }) => ({ fields, ...(onDelta && { onDelta }) })));
    return started.map(({ id, result }, index) => {
      const { signal, label } = /** @type {Job} */ (jobs[index]);
      if (label) this.#setLabel(id, label);
      const stop = () => void this.stop(id);
      if (signal?.aborted) stop();
      signal?.addEventListener('abort', stop, { once: true });
      return { id, result: result.finally(() => signal?.removeEventListener('abort', stop)) };
    });
  }

  /**
   * Stops a job, wherever it is. Where the engine is closed there is nothing left to stop.
   * @param {number} id
   */
  async stop(id) {
    try {
      await this.#client.call('abort', { id });
    } catch (error) {
      if (!(error instanceof PageloomError && error.code === 'engine_closed')) throw error;
    }
  }

  /**
   * What the caller named a request of the engine; nothing for one of another client.
   * @param {string} requestId
   */
  labelOf(requestId) {
    const { prefix } = this.#client;
    return requestId.startsWith(prefix) ? this.#labels.get(Number(requestId.slice(prefix.length))) : undefined;
  }

  /**
   * @param {number} id
   * @param {string} label
   */
  #setLabel(id, label) {
    this.#labels.set(id, label);
    const [oldest] = this.#labels.keys();
    if (this.#labels.size > LABELS_KEPT && oldest !== undefined) this.#labels.delete(oldest);
  }
}
