/**
 * Which model to load, and those that the browser keeps.
 * @import {ModelChoice, StoredModel} from './protocol.js'
 */

import { invalidArgument } from './errors.js';
import { startWorker } from './worker_client.js';

/** Where the built-in model lies, from the page's folder. */
export const BUILT_IN_PATH = 'model/SmolLM2-135M-Instruct.Q4_1.gguf';

/** @typedef {'built-in' | File | Blob | URL | string | {stored: string}} Model */

/**
 * @param {Model} model
 * @returns {ModelChoice}
 */
export function modelChoice(model) {
  if (model instanceof File) return { blob: model, name: model.name };
  if (model instanceof Blob) return { blob: model, name: 'model.gguf' };
  if (model === 'built-in') return { builtIn: BUILT_IN_PATH };
  if (model instanceof URL || typeof model === 'string') {
    if (!URL.canParse(model, document.baseURI)) throw invalidArgument(`${model} is no URL`, 'model');
    return { url: new URL(model, document.baseURI).href };
  }
  if (typeof model === 'object' && typeof model?.stored === 'string') return { stored: model.stored };
  throw invalidArgument('model is "built-in", a File, a Blob, a URL, or {stored: key}', 'model');
}

/** The models kept in the browser's storage. */
export const storedModels = {
  /** @returns {Promise<StoredModel[]>} */
  list: () => onceInWorker('storedModels'),
  /**
   * @param {string} key
   * @returns {Promise<void>}
   */
  remove: (key) => onceInWorker('removeModel', { key }),
};

/**
 * @param {string} method
 * @param {object} [params]
 */
async function onceInWorker(method, params) {
  const client = startWorker();
  try {
    return await client.call(method, params);
  } finally {
    client.close();
  }
}
