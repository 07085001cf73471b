/**
 * Model files kept in the browser's own storage (OPFS), for a worker: sync access handles exist nowhere else.
 * A model is two files: KEY.json says what KEY.gguf is to become, and once that is whole, since when.
 * @import {StoredModel} from './protocol.js'
 */

import { invalidArgument } from './errors.js';

const FOLDER = 'pageloom-models';
const PROBE = 'probe';
const KEY = /^[0-9a-f]{24}$/;
const CHUNK_BYTES = 4 * 1024 * 1024;

/**
 * @typedef {object} ModelIdentity
 * @property {string} id  What the file is known by: its URL, or a picked file's name and date.
 * @property {string} name
 * @property {number} size  Bytes.
 * @property {string | null} validator  The server's ETag or date; null where there is none.
 * @property {string | null} url  Where the rest of a partial copy can be had.
 *
 * @typedef {ModelIdentity & {stored: string | null}} StoredRecord  `stored` is when the copy became whole (ISO 8601).
 * @typedef {StoredRecord & {key: string, done: number}} StoredCopy  `done` of its bytes are there.
 *
 * @typedef {(done: number) => Promise<{stream: ReadableStream<Uint8Array>, start: number}>} OpenStream
 *   The file from byte `start` on, which is `done` where the rest can be had alone, and 0 otherwise.
 */

async function folder() {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(FOLDER, { create: true });
}

/** Null where the browser keeps nothing, as in some private windows. */
async function allowedFolder() {
  return folder().catch(() => null);
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
 * Whether the browser would keep so many bytes more. It is asked for them: Chromium's estimate always has 10 GiB left.
 * @param {number} bytes
 */
export async function hasRoom(bytes) {
  const directory = await allowedFolder();
  if (!directory) return false;
  return withWriteLock(PROBE, {}, async () => {
    const access = await (await directory.getFileHandle(`${PROBE}.gguf`, { create: true })).createSyncAccessHandle();
    try {
      access.truncate(bytes);
      // Chromium throws where there is no room, but in private windows leaves the file as it is and says nothing.
      return access.getSize() === bytes;
    } catch (error) {
      if (isFull(error)) return false;
      throw error;
    } finally {
      access.close();
      await removeFile(directory, `${PROBE}.gguf`);
    }
  });
}

/** @param {unknown} error */
export function isFull(error) {
  return error instanceof DOMException && error.name === 'QuotaExceededError';
}

/** @param {StoredCopy} copy */
export function isWhole({ stored, done, size }) {
  return stored !== null && done === size;
}

/**
 * Whether what is there of a copy is the beginning of this file.
 * @param {StoredCopy} copy
 * @param {{size: number, validator: string | null}} file
 */
export function isSameFile(copy, { size, validator }) {
  return copy.size === size && copy.validator === validator;
}

/**
 * Whole copies, and partial ones that a download can complete; what is left of other writes is removed.
 * @returns {Promise<StoredModel[]>}
 */
export async function listModels() {
  const directory = await folder();
  /** @type {StoredModel[]} */
  const models = [];
  for (const name of await Array.fromAsync(directory.keys())) {
    if (!name.endsWith('.gguf')) continue;
    const key = name.slice(0, -'.gguf'.length);
    const copy = await readCopy(directory, key);
    if (copy && (copy.url || isWhole(copy))) {
      const { size, done, stored, url } = copy;
      models.push({ key, name: copy.name, size, done, stored, url });
    } else await withWriteLock(key, { ifAvailable: true }, async (lock) => lock && discard(key));
  }
  return models.sort((a, b) => a.name.localeCompare(b.name));
}

/**
 * What there is of a copy, or null.
 * @param {string} id
 */
export async function findModel(id) {
  const directory = await allowedFolder();
  return directory && readCopy(directory, await keyOf(id));
}

/**
 * @param {string} key
 * @returns {Promise<File | null>}  Null where there is no such whole model; a key that none can have throws.
 */
export async function openModel(key) {
  checkKey(key);
  const directory = await folder();
  const copy = await readCopy(directory, key);
  return copy && isWhole(copy) ? new File([await fileOf(directory, `${key}.gguf`)], copy.name) : null;
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
 * Writes a model, or the rest of one whose beginning is there, and returns its key. Where the stream ends early, what
 * came stays if it has a URL; where the disk is full, nothing stays.
 * @param {ModelIdentity} identity
 * @param {OpenStream} open  Not called where the whole copy is there.
 * @param {(done: number) => void} onBytes
 * @returns {Promise<string>}
 */
export async function storeModel(identity, open, onBytes) {
  const key = await keyOf(identity.id);
  // Another tab may be storing the same model: one writes, the other finds it written.
  return withWriteLock(key, {}, async () => {
    const directory = await folder();
    const found = await readCopy(directory, key);
    const same = found !== null && isSameFile(found, identity);
    if (found && same && isWhole(found)) return key;
    // The last chunk of an interrupted write may be damaged.
    const kept = same && identity.url ? Math.floor(found.done / CHUNK_BYTES) * CHUNK_BYTES : 0;
    const { stream, start } = await open(kept);
    const record = await directory.getFileHandle(`${key}.json`, { create: true });
    await writeText(record, JSON.stringify({ ...identity, stored: null }));
    try {
      await writeStream(
        await directory.getFileHandle(`${key}.gguf`, { create: true }),
        stream,
        start,
        identity,
        onBytes,
      );
    } catch (error) {
      if (isFull(error) || !identity.url) await discard(key);
      throw error;
    }
    await writeText(record, JSON.stringify({ ...identity, stored: new Date().toISOString() }));
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
 * @param {number} start  Where in the file the stream begins.
 * @param {ModelIdentity} identity
 * @param {(done: number) => void} onBytes
 */
async function writeStream(handle, stream, start, identity, onBytes) {
  const access = await handle.createSyncAccessHandle();
  try {
    access.truncate(start);
    let done = start;
    for await (const chunk of stream) {
      for (let first = 0; first < chunk.length; first += CHUNK_BYTES) {
        const part = chunk.subarray(first, first + CHUNK_BYTES);
        // Chromium's private windows return nonsense where others throw.
        if (access.write(part, { at: done }) !== part.length) throw new DOMException('no room', 'QuotaExceededError');
        done += part.length;
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
  access.truncate(0);
  access.write(new TextEncoder().encode(text), { at: 0 });
  access.flush();
  access.close();
}

/**
 * @param {FileSystemDirectoryHandle} directory
 * @param {string} key
 * @returns {Promise<StoredCopy | null>}
 */
async function readCopy(directory, key) {
  try {
    /** @type {StoredRecord} */
    const record = JSON.parse(await (await fileOf(directory, `${key}.json`)).text());
    const { size } = await fileOf(directory, `${key}.gguf`);
    return { ...record, key, done: size };
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
