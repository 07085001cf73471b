/**
 * The JavaScript API: one local model, many prompts at once, in OpenAI's shapes.
 *
 *     const engine = await Pageloom.load({ model: 'built-in' });
 *     const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }] });
 *     const rows = await engine.batch([{ prompt: 'One' }, { prompt: 'Two' }]);
 *
 * @import {EngineOptions, JobFields, JobResult, LoadedModel, LoadProgress} from './protocol.js'
 * @import {Model} from './models.js'
 * @import {Envelope, SamplingBody, Shapes} from './openai.js'
 * @import {CallClient} from './call_client.js'
 * @import {LocalServer} from './server/local_server.js'
 */

import { errorObject, invalidArgument, PageloomError } from './errors.js';
import { Inspection } from './inspection.js';
import { modelChoice } from './models.js';
import { chatJob, chatShapes, completionJob, textShapes } from './openai.js';
import { ServerClient } from './server/server_client.js';
import { streamOf } from './stream.js';
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
 *
 * @typedef {{signal?: AbortSignal, label?: string}} CallOptions  After the signal a request rejects, or its stream
 *   throws. `snapshot()` tells the label.
 */

const LABELS_KEPT = 10_000;

/**
 * @template Body, Whole, Chunk
 * @typedef {{
 *   (body: Body & {stream: true}, options?: CallOptions): Promise<AsyncGenerator<Chunk, void, void>>,
 *   (body: Body & {stream?: false}, options?: CallOptions): Promise<Whole>,
 * }} Create
 */

/**
 * Fires `recovery`, its detail a `Recovery`, when the device is lost and again when another one has taken its place;
 * requests go on meanwhile, with the tokens that they would have had.
 */
export class Pageloom extends EventTarget {
  #client;
  /** @type {Map<string, number>} */
  #jobIds = new Map();
  /** @type {Map<number, string>} The labels of jobs, those that ended long ago forgotten. */
  #labels = new Map();

  /**
   * Starts the worker and loads a model into it. A string is a URL, or "built-in". With `store` (the default) a model
   * from a URL or a File is kept in the browser's storage, where there is room, and read from there the next time.
   * @param {LoadOptions} [options]
   */
  static async load({ model = 'built-in', store = true, onProgress, signal, ...options } = {}) {
    signal?.throwIfAborted();
    const client = model instanceof Inspection ? model.client : startWorker();
    const aborted = () => client.close();
    signal?.addEventListener('abort', aborted, { once: true });
    try {
      const params = { model: model instanceof Inspection ? model.choice : modelChoice(model), store, options };
      return new Pageloom(client, await client.call('load', params, onProgress));
    } catch (error) {
      client.close();
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', aborted);
    }
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
    this.chat = { completions: this.#endpoint(chatJob, chatShapes) };
    this.completions = this.#endpoint(completionJob, textShapes);
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
    const stops = rows.map((row) => stopSignal(signal, row?.signal));
    const jobs = this.#client.generate(
      rows.map((row, index) => {
        const { signal: _signal, label: _label, ...fields } = { ...row };
        return { fields, onDelta: ({ text }) => onText?.(index, text) };
      }),
    );
    const results = jobs.map(async ({ id, result }, index) => {
      const unlisten = onAbort(stops[index], () => this.#stop(id));
      this.#setLabel(id, rows[index]?.label);
      /** @type {RowResult} */
      const row = await result.then(
        (job) => ({ index, ...job }),
        (error) => ({ index, error: errorObject(error) }),
      );
      unlisten();
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
    const job = this.#jobIds.get(id);
    if (job !== undefined) await this.#stop(job);
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
      const label = this.#labels.get(this.#jobOf(request.id));
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

  /**
   * The job of a request in the engine; NaN for one of another client.
   * @param {string} id
   */
  #jobOf(id) {
    const { prefix } = this.#client;
    return id.startsWith(prefix) ? Number(id.slice(prefix.length)) : Number.NaN;
  }

  /**
   * @param {number} id
   * @param {string | undefined} label
   */
  #setLabel(id, label) {
    if (!label) return;
    this.#labels.set(id, label);
    const [oldest] = this.#labels.keys();
    if (this.#labels.size > LABELS_KEPT && oldest !== undefined) this.#labels.delete(oldest);
  }

  /**
   * Where the engine is closed there is nothing left to stop.
   * @param {number} id
   */
  async #stop(id) {
    try {
      await this.#client.call('abort', { id });
    } catch (error) {
      if (!(error instanceof PageloomError && error.code === 'engine_closed')) throw error;
    }
  }

  /**
   * @template {SamplingBody} Body
   * @template Whole, Chunk
   * @param {(body: Body) => JobFields} toJob
   * @param {Shapes<Whole, Chunk>} shapes
   */
  #endpoint(toJob, shapes) {
    /**
     * @param {Body} body
     * @param {CallOptions} [options]
     */
    const create = async (body, options = {}) => {
      const fields = toJob(body);
      options.signal?.throwIfAborted();
      return body.stream ? this.#stream(body, fields, shapes, options) : this.#whole(fields, shapes, options);
    };
    return { create: /** @type {Create<Body, Whole, Chunk>} */ (create) };
  }

  /**
   * @template Whole, Chunk
   * @param {JobFields} fields
   * @param {Shapes<Whole, Chunk>} shapes
   * @param {CallOptions} options
   */
  async #whole(fields, shapes, options) {
    const job = this.#start(fields, shapes, options);
    const result = await job.result;
    options.signal?.throwIfAborted();
    return shapes.whole(job.envelope, result);
  }

  /**
   * Leaving the loop early, or the signal, stops the request. After the signal the stream throws its reason.
   * @template Whole, Chunk
   * @param {SamplingBody} body
   * @param {JobFields} fields
   * @param {Shapes<Whole, Chunk>} shapes
   * @param {CallOptions} options
   * @returns {AsyncGenerator<Chunk, void, void>}
   */
  #stream(body, fields, shapes, options) {
    /** @type {import('./stream.js').Stream<import('./protocol.js').JobDelta>} */
    const deltas = streamOf();
    const job = this.#start(fields, shapes, options, deltas.push);
    job.result.then(deltas.end, deltas.fail);

    async function* chunks() {
      yield* shapes.opening(job.envelope);
      for await (const delta of deltas) yield shapes.delta(job.envelope, delta);
      options.signal?.throwIfAborted();
      const result = await job.result;
      yield shapes.closing(job.envelope, result);
      if (body.stream_options?.include_usage) yield shapes.usage(job.envelope, result);
    }
    const iterator = chunks();
    const finish = iterator.return.bind(iterator);
    // A generator runs its own `return` only between chunks; the request has to stop while a chunk is awaited, too.
    iterator.return = (value) => {
      this.#stop(job.id);
      return finish(value);
    };
    return iterator;
  }

  /**
   * @param {JobFields} fields
   * @param {{idPrefix: string}} shapes
   * @param {CallOptions} options
   * @param {(delta: import('./protocol.js').JobDelta) => void} [onDelta]
   */
  #start(fields, shapes, { signal, label }, onDelta) {
    const [job] = /** @type {[{id: number, result: Promise<JobResult>}]} */ (
      this.#client.generate([onDelta ? { fields, onDelta } : { fields }])
    );
    const id = `${shapes.idPrefix}-${job.id}`;
    this.#jobIds.set(id, job.id);
    this.#setLabel(job.id, label);
    const unlisten = onAbort(signal, () => this.#stop(job.id));
    const result = job.result.finally(() => {
      this.#jobIds.delete(id);
      unlisten();
    });
    /** @type {Envelope} */
    const envelope = { id, created: Math.floor(Date.now() / 1000), model: this.model.name };
    return { id: job.id, envelope, result };
  }
}

/** @param {(AbortSignal | undefined)[]} signals */
function stopSignal(...signals) {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

/**
 * Calls back once, at once if the signal has fired already. Returns what takes the listener off again.
 * @param {AbortSignal | undefined} signal
 * @param {() => void} callback
 */
function onAbort(signal, callback) {
  if (signal?.aborted) callback();
  signal?.addEventListener('abort', callback, { once: true });
  return () => signal?.removeEventListener('abort', callback);
}
