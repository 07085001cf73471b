/**
 * The JavaScript API: one local model, many prompts at once, in OpenAI's shapes.
 *
 *     const engine = await Pageloom.load({ model: 'built-in' });
 *     const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }] });
 *     const rows = await engine.batch([{ prompt: 'One' }, { prompt: 'Two' }]);
 *
 * @import {CallClient} from './call_client.js'
 * @import {Model} from './models.js'
 * @import {EngineOptions, JobDelta, JobFields, JobResult, LoadedModel, LoadProgress} from './protocol.js'
 * @import {LocalServer} from './server/local_server.js'
 */

import { Endpoint } from './endpoint.js';
import { errorObject, invalidArgument, PageloomError } from './errors.js';
import { Inspection } from './inspection.js';
import { Jobs } from './jobs.js';
import { modelChoice } from './models.js';
import { chatJob, chatShapes, completionJob, textShapes } from './openai.js';
import { ServerClient } from './server/server_client.js';
import { startWorker } from './worker_client.js';

/**
 * @typedef {EngineOptions & {
 *   model?: Model | Inspection,
 *   store?: boolean,
 *   onProgress?: (progress: LoadProgress) => void,
 *   signal?: AbortSignal,
 * }} LoadOptions
 *
 * @typedef {JobFields & {signal?: AbortSignal, label?: string}} Row  A job; its own signal stops this row alone, and
 *   `snapshot()` tells its label.
 * @typedef {(JobResult & {index: number}) | {index: number, error: import('./protocol.js').ErrorObject}} RowResult
 *
 * @typedef {object} BatchOptions
 * @property {(result: RowResult) => void} [onRow]  Called as each row ends, in the order in which they end.
 * @property {(index: number, text: string) => void} [onText]  Called with each piece of a row's text.
 * @property {AbortSignal} [signal]  Stops every row.
 */

/**
 * Fires `recovery`, its detail a `Recovery`, when the device is lost and again when another one has taken its place;
 * requests go on meanwhile, with the tokens that they would have had.
 */
export class Pageloom extends EventTarget {
  #client;
  #jobs;

  /**
   * Starts the worker and loads a model into it. A string is a URL, or "built-in". With `store` (the default) a model
   * from a URL or a File is kept in the browser's storage, where there is room, and read from there the next time.
   * @param {LoadOptions} [options]
   */
  static async load({ model = 'built-in', store = true, onProgress, signal, ...options } = {}) {
    signal?.throwIfAborted();
    const isLookedAt = model instanceof Inspection;
    const choice = isLookedAt ? model.choice : modelChoice(model);
    const client = isLookedAt ? model.client : startWorker();
    const params = { model: choice, store, options };
    return new Pageloom(client, await client.callOrClose('load', params, { onEvent: onProgress, signal }));
  }

  /**
   * An engine on a local server, in place of this tab: the same jobs, on the server's model.
   * @param {LocalServer} server
   * @param {{signal?: AbortSignal}} [options]
   */
  static async connect(server, { signal } = {}) {
    const client = new ServerClient(server);
    try {
      return new Pageloom(client, await client.open(signal), server);
    } catch (error) {
      client.close();
      signal?.throwIfAborted();
      throw error;
    }
  }

  /**
   * @param {CallClient} client
   * @param {LoadedModel} model
   * @param {LocalServer | null} [server]
   */
  constructor(client, model, server = null) {
    super();
    this.#client = client;
    this.#jobs = new Jobs(client);
    this.model = model;
    /** What computes, where it is not this tab. */
    this.server = server;
    /**
     * Resolves, with the reason, once the engine can do no more: its device is lost and cannot be replaced, its worker
     * has stopped, or it was closed.
     * @type {Promise<PageloomError>}
     */
    this.lost = client
      .call('watch', {}, (recovery) => this.#tell(recovery))
      .then(
        (error) => new PageloomError(error),
        (error) => error,
      );
    this.chat = { completions: new Endpoint(this.#jobs, model.name, chatJob, chatShapes) };
    this.completions = new Endpoint(this.#jobs, model.name, completionJob, textShapes);
  }

  /**
   * Runs all rows at once. A row that fails is a result with `error`; it never fails the others. A stopped row keeps
   * the text it had, with the finish reason "abort".
   * @param {Row[]} rows
   * @param {BatchOptions} [options]
   * @returns {Promise<RowResult[]>} One result a row, in the rows' order.
   */
  async batch(rows, { onRow, onText, signal } = {}) {
    if (!Array.isArray(rows)) throw invalidArgument('batch takes an array of jobs');
    const jobs = this.#jobs.start(
      rows.map((row, index) => {
        const { signal: own, label, ...fields } = { ...row };
        const onDelta = (/** @type {JobDelta} */ { text }) => onText?.(index, text);
        return { fields, onDelta, signal: either(signal, own), ...(label && { label }) };
      }),
    );
    const results = jobs.map(async ({ result }, index) => {
      /** @type {RowResult} */
      const row = await result.then(
        (job) => ({ index, ...job }),
        (error) => ({ index, error: errorObject(error) }),
      );
      onRow?.(row);
      return row;
    });
    return Promise.all(results);
  }

  /**
   * Stops one request, wherever it is; nothing happens where it has ended.
   * @param {string} id  The `id` of a completion or of its chunks.
   */
  async abort(id) {
    await Promise.all([this.chat.completions.abort(id), this.completions.abort(id)]);
  }

  /**
   * How many tokens the prompt of a job has, its chat template included.
   * @param {Pick<JobFields, 'prompt' | 'messages' | 'prompt_ids' | 'raw'>} fields
   * @returns {Promise<number>}
   */
  async countTokens(fields) {
    return (await this.#client.call('countTokens', { fields })).count;
  }

  /** @returns {Promise<import('./protocol.js').EngineStats>} */
  stats() {
    return this.#client.call('stats');
  }

  /** @returns {Promise<import('./protocol.js').EngineSnapshot>} */
  async snapshot() {
    /** @type {import('./protocol.js').EngineSnapshot} */
    const snapshot = await this.#client.call('snapshot');
    for (const request of [...snapshot.running, ...snapshot.waiting, ...snapshot.ended]) {
      const label = this.#jobs.labelOf(request.id);
      if (label) request.label = label;
    }
    return snapshot;
  }

  /** Ends the worker and frees the GPU; requests still running are rejected. */
  close() {
    this.#client.close();
  }

  /** @param {import('./protocol.js').Recovery} recovery */
  #tell(recovery) {
    this.model = { ...this.model, adapter: recovery.adapter };
    this.dispatchEvent(new CustomEvent('recovery', { detail: recovery }));
  }
}

/** @param {(AbortSignal | undefined)[]} signals */
function either(...signals) {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}
