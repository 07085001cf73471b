/**
 * From what the page chose to a source that Python reads: out of the browser's storage where a copy is there.
 * @import {LoadProgress, ModelChoice} from './protocol.js'
 */

import { openSource } from './bridge.js';
import { fetchOrSay, invalidArgument, PageloomError } from './errors.js';
import { findModel, freeBytes, openModel, storeModel } from './storage.js';

/**
 * @typedef {object} ModelFile
 * @property {string} name
 * @property {Awaited<ReturnType<typeof openSource>>} source
 * @property {string | null} stored  The key of the copy in the browser's storage.
 * @property {string[]} warnings
 * @property {Blob | null} keep  A picked file to store once it has loaded.
 *
 * @typedef {(progress: LoadProgress) => void} OnProgress
 */

/**
 * @param {ModelChoice} choice
 * @param {boolean} store
 * @param {URL} root  The page's folder.
 * @param {OnProgress} onProgress
 * @returns {Promise<ModelFile>}
 */
export async function openChoice(choice, store, root, onProgress) {
  if ('stored' in choice) return openStored(choice.stored);
  if ('blob' in choice) {
    const source = await openSource(choice.blob);
    return { name: choice.name, source, stored: null, warnings: [], keep: store ? choice.blob : null };
  }
  const url = 'builtIn' in choice ? new URL(choice.builtIn, root).href : choice.url;
  return openUrl(url, store, onProgress);
}

/**
 * Copies a picked file into the browser's storage.
 * @param {Blob} blob
 * @param {string} name
 * @param {OnProgress} onProgress
 * @returns {Promise<{stored: string | null, warnings: string[]}>}
 */
export async function keepFile(blob, name, onProgress) {
  const modified = blob instanceof File ? blob.lastModified : 0;
  const identity = { id: `file:${name}:${blob.size}:${modified}`, name, size: blob.size, validator: null };
  const refusal = await roomRefusal(name, blob.size);
  if (refusal) return { stored: null, warnings: [refusal] };
  const stored = await storeModel(identity, blob.stream(), (done) => {
    onProgress({ stage: 'store', done, total: blob.size });
  });
  return { stored, warnings: [] };
}

/**
 * @param {string} key
 * @returns {Promise<ModelFile>}
 */
async function openStored(key) {
  const file = await openModel(key);
  if (!file) throw invalidArgument('that model is no longer in this browser; load it again from its file', 'model');
  return { name: file.name, source: await openSource(file), stored: key, warnings: [], keep: null };
}

/**
 * @param {string} url
 * @param {boolean} store
 * @param {OnProgress} onProgress
 * @returns {Promise<ModelFile>}
 */
async function openUrl(url, store, onProgress) {
  const name = fileName(url);
  if (!store) return { name, source: await openSource(url), stored: null, warnings: [], keep: null };
  const known = await findModel(url);
  const head = await fetchHead(url, known !== null);
  if (known && (!head || (head.size === known.size && head.validator === known.validator))) {
    return openStored(known.key);
  }
  if (!head) throw cannotFetch(url, 'the server did not answer');
  const refusal = await roomRefusal(name, head.size);
  if (refusal) return { name, source: await openSource(url), stored: null, warnings: [refusal], keep: null };
  const response = await fetchOrSay(url);
  if (!response.ok || !response.body) throw cannotFetch(url, `HTTP ${response.status}`);
  const key = await storeModel({ id: url, name, ...head }, response.body, (done) => {
    onProgress({ stage: 'download', done, total: head.size });
  });
  return openStored(key);
}

/** @param {string} url */
function fileName(url) {
  const name = new URL(url).pathname.split('/').pop() || 'model.gguf';
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // a percent sign in it stands for itself
  }
}

/**
 * The size and the version that the server tells; null where it does not answer and a stored copy can stand in.
 * @param {string} url
 * @param {boolean} haveCopy
 * @returns {Promise<{size: number, validator: string | null} | null>}
 */
async function fetchHead(url, haveCopy) {
  /** @type {Response} */
  let response;
  try {
    response = await fetchOrSay(url, { method: 'HEAD' });
  } catch (error) {
    if (haveCopy) return null;
    throw error;
  }
  if (!response.ok) throw cannotFetch(url, `HTTP ${response.status}`);
  const size = Number(response.headers.get('Content-Length'));
  if (!size) throw cannotFetch(url, 'the server does not tell its size');
  return { size, validator: response.headers.get('ETag') ?? response.headers.get('Last-Modified') };
}

/**
 * Why a file is not kept, or null.
 * @param {string} name
 * @param {number} size
 */
async function roomRefusal(name, size) {
  const room = await freeBytes();
  if (size <= room) return null;
  const [needed, left] = [size, room].map((bytes) => `${Math.round(bytes / 1e6)} MB`);
  return `${name} is not kept in this browser: it takes ${needed} and the browser has room for ${left}`;
}

/**
 * @param {string} url
 * @param {string} reason
 */
function cannotFetch(url, reason) {
  const message = `could not fetch the model from ${url}: ${reason}`;
  return new PageloomError({ message, type: 'invalid_request_error', param: 'model', code: 'invalid_argument' });
}
