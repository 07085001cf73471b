/**
 * A model looked at before it is loaded:
 *
 *     const inspection = await inspect('model.gguf');
 *     const { num_bytes } = await inspection.fit({ context_length: 2048 });
 *     const engine = await Pageloom.load({ model: inspection, context_length: 2048 });
 *
 * @import {Model} from './models.js'
 * @import {CacheFit, EngineOptions, Inspected, LoadProgress, ModelChoice} from './protocol.js'
 * @import {WorkerClient} from './worker_client.js'
 */

import { modelChoice } from './models.js';
import { startWorker } from './worker_client.js';

/**
 * Starts a worker and reads the header of a model there: what the model takes, and whether this GPU can run it.
 * @param {Model} model
 * @param {{onProgress?: (progress: LoadProgress) => void, signal?: AbortSignal}} [options]
 */
export async function inspect(model, { onProgress, signal } = {}) {
  signal?.throwIfAborted();
  const choice = modelChoice(model);
  const client = startWorker();
  const told = await client.callOrClose('inspect', { model: choice }, { onEvent: onProgress, signal });
  return new Inspection(client, choice, told);
}

/** `Pageloom.load` takes it as its model and goes on in the same worker; otherwise `close` ends that. */
export class Inspection {
  /**
   * @param {WorkerClient} client
   * @param {ModelChoice} choice
   * @param {Inspected} told
   */
  constructor(client, choice, told) {
    this.client = client;
    this.choice = choice;
    this.told = told;
  }

  /**
   * The KV pool that these options would make; rejects with the reason where they cannot be.
   * @param {EngineOptions} options
   * @returns {Promise<CacheFit>}
   */
  fit(options) {
    return this.client.call('fit', { options });
  }

  close() {
    this.client.close();
  }
}
