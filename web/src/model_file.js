/**
 * From what the page chose to a source that Python reads: out of the browser's storage where a copy is there.
 * @import {RemoteFile} from './download.js'
 * @import {LoadProgress, ModelChoice} from './protocol.js'
 * @import {StoredCopy} from './storage.js'
 */

import { openSource } from './bridge.js';
import { askServer, cannotFetch, downloadOf } from './download.js';
import { invalidArgument, PageloomError } from './errors.js';
import { findModel, hasRoom, isFull, isSameFile, isWhole, openModel, storeModel } from './storage.js';

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
  return openUrl(urlOf(choice, root), store, onProgress);
}

/**
 * @param {{builtIn: string} | {url: string}} choice
 * @param {URL} root
 */
export function urlOf(choice, root) {
  return 'builtIn' in choice ? new URL(choice.builtIn, root).href : choice.url;
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
  const identity = { id: `file:${name}:${blob.size}:${modified}`, name, size: blob.size, validator: null, url: null };
  const refused = { stored: null, warnings: [noRoom(name)] };
  if (!(await hasRoom(blob.size))) return refused;
  const open = async () => ({ stream: blob.stream(), start: 0 });
  try {
    const stored = await storeModel(identity, open, (done) => onProgress({ stage: 'store', done, total: blob.size }));
    return { stored, warnings: [] };
  } catch (error) {
    if (isFull(error)) return refused;
    throw error;
  }
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
  const { copy, file } = await lookUp(url);
  if (copy && !file) return openStored(copy.key);
  if (!file) throw cannotFetch(url, 'the server did not answer');
  const unkept = async () => ({
    name,
    source: await openSource(url),
    stored: null,
    warnings: [noRoom(name)],
    keep: null,
  });
  if (!(await hasRoom(file.size - (copy?.done ?? 0)))) return unkept();
  /** @type {string[]} */
  const warnings = [];
  const open = downloadOf(url, file);
  const openRest = async (/** @type {number} */ done) => {
    const opened = await open(done);
    if (opened.start < done) warnings.push(`${new URL(url).host} sends no parts of files: the download began anew`);
    return opened;
  };
  const onBytes = (/** @type {number} */ done) => onProgress({ stage: 'download', done, total: file.size });
  try {
    const key = await storeModel({ id: url, name, url, ...file }, openRest, onBytes);
    return { ...(await openStored(key)), warnings };
  } catch (error) {
    if (isFull(error)) return unkept();
    throw error instanceof TypeError ? interrupted(name) : error;
  }
}

/**
 * What is here of the file at a URL, and what of it the server has: `file` is null where the whole copy will do.
 * @param {string} url
 * @returns {Promise<{copy: StoredCopy | null, file: RemoteFile | null}>}
 */
export async function lookUp(url) {
  const copy = await findModel(url);
  const whole = copy !== null && isWhole(copy);
  const file = await askServer(url, whole);
  const same = copy !== null && (file === null || isSameFile(copy, file));
  return { copy: same ? copy : null, file: same && whole ? null : file };
}

/** @param {string} url */
export function fileName(url) {
  const name = new URL(url).pathname.split('/').pop() || 'model.gguf';
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // a percent sign in it stands for itself
  }
}

/** @param {string} name */
function noRoom(name) {
  return `${name} is not kept in this browser, which has no room for it: it has to be read from its source the next time`;
}

/** @param {string} name */
function interrupted(name) {
  const message = `the download of ${name} was interrupted; load it again, and it goes on from where it stopped`;
  return new PageloomError({ message, type: 'server_error', param: 'model', code: 'no_answer' });
}
