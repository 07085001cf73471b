/**
 * Model files kept in the browser's own storage (OPFS), for a worker: sync access handles exist nowhere else.
 * A model is two files: KEY.gguf and, written last, KEY.json. What has no KEY.json is the rest of a write that ended early.
 * @import {StoredModel} from './protocol.js'
 */

import { invalidArgument } from './errors.js';

const FOLDER = 'pageloom-models';
const KEY = /^[0-9a-f]{24}$/;
const CHUNK_BYTES = 4 * 1024 * 1024;

/**
 * @typedef {object} ModelIdentity
 * @property {string} id  What the file is known by: its URL, or a picked file's name and date.
 * @property {string} name
 * @property {number} size  Bytes.
 * @property {string | null} validator  The server's ETag or date; null where there is none.
 *
 * @typedef {ModelIdentity & StoredModel} StoredRecord
 */

async function folder() {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(FOLDER, { create: true });
}

/** @param {string} id */
async function keyOf(id) {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(id));
  return Array.from(new Uint8Array(digest, 0, 12), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** @param {unknown} key */
function checkKey(key) {
  if (typeof key === 'string' && KEY.test(key)) return;
  throw invalidArgument(`${JSON.stringify(key)} is no key of a stored model; storedModels.list() tells them`, 'model');
}

/**
 * Bytes that the browser will still keep for this page.
 * @returns {Promise<number>}
 */
export async function freeBytes() {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  return Math.max(0, quota - usage);
}

/**
 * The whole copies; what is left of a write that ended early is removed.
 * @returns {Promise<StoredModel[]>}
 */
export async function listModels() {
  const directory = await folder();
  /** @type {StoredModel[]} */
  const models = [];
  for (const name of await Array.fromAsync(directory.keys())) {
    if (!name.endsWith('.gguf')) continue;
    const key = name.slice(0, -'.gguf'.length);
    const record = await readRecord(directory, key);
    if (record) models.push({ key, name: record.name, size: record.size });
    else await withWriteLock(key, { ifAvailable: true }, async (lock) => lock && discard(key));
  }
  return models.sort((a, b) => a.name.localeCompare(b.name));
}

/**
 * The record of a whole copy, or null.
 * @param {string} id
 */
export async function findModel(id) {
  return readRecord(await folder(), await keyOf(id));
}

/**
 * @param {string} key
 * @returns {Promise<File | null>}  Null where there is no such model; a key that none can have throws.
 */
export async function openModel(key) {
  checkKey(key);
  const directory = await folder();
  const record = await readRecord(directory, key);
  return record && new File([await fileOf(directory, `${key}.gguf`)], record.name);
}

/** @param {string} key */
export async function removeModel(key) {
  checkKey(key);
  await discard(key);
}

/** @param {string} key */
async function discard(key) {
  const directory = await folder();
  await removeFile(directory, `${key}.json`);
  await removeFile(directory, `${key}.gguf`);
}

/**
 * Writes a model and returns its key. Where the stream ends early, or the disk is full, nothing stays behind.
 * @param {ModelIdentity} identity
 * @param {ReadableStream<Uint8Array>} stream
 * @param {(done: number) => void} onBytes
 * @returns {Promise<string>}
 */
export async function storeModel(identity, stream, onBytes) {
  const key = await keyOf(identity.id);
  // Another tab may be storing the same model: one writes, the other finds it written.
  return withWriteLock(key, {}, async () => {
    const directory = await folder();
    const found = await readRecord(directory, key);
    if (found && found.size === identity.size && found.validator === identity.validator) {
      await stream.cancel();
      return key;
    }
    await discard(key);
    try {
      await writeStream(await directory.getFileHandle(`${key}.gguf`, { create: true }), stream, identity, onBytes);
      await writeText(
        await directory.getFileHandle(`${key}.json`, { create: true }),
        JSON.stringify({ ...identity, key }),
      );
    } catch (error) {
      await discard(key);
      throw error;
    }
    return key;
  });
}

/**
 * Runs while no other tab or worker writes this model; a worker that ends gives its lock back.
 * @template Result
 * @param {string} key
 * @param {LockOptions} options
 * @param {(lock: Lock | null) => Promise<Result>} work
 * @returns {Promise<Result>}
 */
async function withWriteLock(key, options, work) {
  return await navigator.locks.request(`pageloom-store-${key}`, options, work);
}

/**
 * @param {FileSystemFileHandle} handle
 * @param {ReadableStream<Uint8Array>} stream
 * @param {ModelIdentity} identity
 * @param {(done: number) => void} onBytes
 */
async function writeStream(handle, stream, identity, onBytes) {
  const access = await handle.createSyncAccessHandle();
  try {
    let done = 0;
    for await (const chunk of stream) {
      for (let start = 0; start < chunk.length; start += CHUNK_BYTES) {
        done += access.write(chunk.subarray(start, start + CHUNK_BYTES), { at: done });
      }
      onBytes(done);
    }
    if (done !== identity.size) throw new Error(`${identity.name} ended after ${done} of ${identity.size} bytes`);
    access.flush();
  } finally {
    access.close();
  }
}

/**
 * @param {FileSystemFileHandle} handle
 * @param {string} text
 */
async function writeText(handle, text) {
  const access = await handle.createSyncAccessHandle();
  access.write(new TextEncoder().encode(text), { at: 0 });
  access.close();
}

/**
 * @param {FileSystemDirectoryHandle} directory
 * @param {string} key
 * @returns {Promise<StoredRecord | null>}
 */
async function readRecord(directory, key) {
  try {
    const record = JSON.parse(await (await fileOf(directory, `${key}.json`)).text());
    const { size } = await fileOf(directory, `${key}.gguf`);
    return size === record.size ? record : null;
  } catch (error) {
    if (error instanceof SyntaxError || (error instanceof DOMException && error.name === 'NotFoundError')) return null;
    throw error;
  }
}

/**
 * @param {FileSystemDirectoryHandle} directory
 * @param {string} name
 */
async function fileOf(directory, name) {
  return (await directory.getFileHandle(name)).getFile();
}

/**
 * @param {FileSystemDirectoryHandle} directory
 * @param {string} name
 */
async function removeFile(directory, name) {
  try {
    await directory.removeEntry(name);
  } catch (error) {
    if (!(error instanceof DOMException && error.name === 'NotFoundError')) throw error;
  }
}
