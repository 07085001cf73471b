/**
 * One of OpenAI's endpoints over jobs: a body in, a response or a stream of chunks out.
 * @import {Jobs} from './jobs.js'
 * @import {Envelope, SamplingBody, Shapes} from './openai.js'
 * @import {JobDelta, JobFields} from './protocol.js'
 */

import { streamOf } from './stream.js';

/**
 * @typedef {{signal?: AbortSignal, label?: string}} CallOptions  After the signal a request rejects, or its stream
 *   throws. `snapshot()` tells the label.
 */

/**
 * @template Body, Whole, Chunk
 * @typedef {{
 *   (body: Body & {stream: true}, options?: CallOptions): Promise<AsyncGenerator<Chunk, void, void>>,
 *   (body: Body & {stream?: false}, options?: CallOptions): Promise<Whole>,
 * }} Create
 */

/**
 * @template {SamplingBody} Body
 * @template Whole, Chunk
 */
export class Endpoint {
  #jobs;
  #model;
  #toJob;
  #shapes;
  /** @type {Map<string, number>} Live requests: their ids, and those of their jobs. */
  #ids = new Map();

  /**
   * @param {Jobs} jobs
   * @param {string} model  Its name in responses.
   * @param {(body: Body) => JobFields} toJob
   * @param {Shapes<Whole, Chunk>} shapes
   */
  constructor(jobs, model, toJob, shapes) {
    this.#jobs = jobs;
    this.#model = model;
    this.#toJob = toJob;
    this.#shapes = shapes;
  }

  /** @type {Create<Body, Whole, Chunk>} */
  create = /** @type {any} */ (
    async (/** @type {Body} */ body, /** @type {CallOptions} */ options = {}) => {
      const fields = this.#toJob(body);
      options.signal?.throwIfAborted();
      return body.stream ? this.#stream(body, fields, options) : this.#whole(fields, options);
    }
  );

  /**
   * Stops a request of this endpoint's, if it lives.
   * @param {string} id
   */
  async abort(id) {
    const job = this.#ids.get(id);
    if (job !== undefined) await this.#jobs.stop(job);
  }

  /**
   * @param {JobFields} fields
   * @param {CallOptions} options
   */
  async #whole(fields, options) {
    const job = this.#start(fields, options);
    const result = await job.result;
    options.signal?.throwIfAborted();
    return this.#shapes.whole(job.envelope, result);
  }

  /**
   * Leaving the loop early, or the signal, stops the request. After the signal the stream throws its reason.
   * @param {SamplingBody} body
   * @param {JobFields} fields
   * @param {CallOptions} options
   * @returns {AsyncGenerator<Chunk, void, void>}
   */
  #stream(body, fields, options) {
    /** @type {import('./stream.js').Stream<JobDelta>} */
    const deltas = streamOf();
    const job = this.#start(fields, options, deltas.push);
    job.result.then(deltas.end, deltas.fail);
    const shapes = this.#shapes;

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
      this.#jobs.stop(job.id);
      return finish(value);
    };
    return iterator;
  }

  /**
   * @param {JobFields} fields
   * @param {CallOptions} options
   * @param {(delta: JobDelta) => void} [onDelta]
   */
  #start(fields, options, onDelta) {
    const [job] = /** @type {[{id: number, result: Promise<import('./protocol.js').JobResult>}]} */ (
      this.#jobs.start([{ fields, ...(onDelta && { onDelta }), ...options }])
    );
    const id = `${this.#shapes.idPrefix}-${job.id}`;
    this.#ids.set(id, job.id);
    /** @type {Envelope} */
    const envelope = { id, created: Math.floor(Date.now() / 1000), model: this.#model };
    return { id: job.id, envelope, result: job.result.finally(() => this.#ids.delete(id)) };
  }
}
