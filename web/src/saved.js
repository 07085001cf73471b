/**
 * What the page keeps between visits besides models: conversations and batches, in IndexedDB.
 *
 * | store | key             | value                          |
 * |-------|-----------------|--------------------------------|
 * | chats | id              | a conversation                 |
 * | runs  | id              | a batch and its settings       |
 * | rows  | run, then index | a row of a batch with its result |
 *
 * @typedef {'chats' | 'runs' | 'rows'} Store
 */

import { PageloomError } from './errors.js';

const NAME = 'pageloom';
const VERSION = 1;
/** @type {Record<Store, string | string[]>} */
const KEY_PATHS = { chats: 'id', runs: 'id', rows: ['run', 'index'] };

/** A page that is being reloaded may hold a lock for a moment still. */
const LOCK_MS = 1500;

/** @type {Promise<IDBDatabase> | null} */
let opened = null;

export const saved = {
  /**
   * @param {Store} store
   * @param {IDBValidKey} key
   * @returns {Promise<any>} Undefined where there is none.
   */
  get: (store, key) => within([store], 'readonly', (objects) => objects(store).get(key)),
  /**
   * In the order of their keys.
   * @param {Store} store
   * @param {IDBKeyRange} [range]
   * @returns {Promise<any[]>}
   */
  all: (store, range) => within([store], 'readonly', (objects) => objects(store).getAll(range)),
  /**
   * Makes all changes or none.
   * @param {Store[]} stores
   * @param {(objects: (store: Store) => IDBObjectStore) => void} make  Makes them, in these stores.
   * @returns {Promise<void>}
   */
  change: (stores, make) => within(stores, 'readwrite', make),
  /**
   * @param {Store} store
   * @param {object} value
   * @returns {Promise<void>}
   */
  put: (store, value) => saved.change([store], (objects) => objects(store).put(value)),
  /**
   * @param {Store} store
   * @param {IDBValidKey} key
   * @returns {Promise<void>}
   */
  remove: (store, key) => saved.change([store], (objects) => objects(store).delete(key)),
};

/**
 * Whether this tab is the one that keeps what the lock stands for; it is so until it closes.
 * @param {string} lock
 * @returns {Promise<boolean>}
 */
export function own(lock) {
  return new Promise((resolve) => {
    const hold = () => {
      resolve(true);
      return new Promise(() => {});
    };
    navigator.locks.request(lock, { signal: AbortSignal.timeout(LOCK_MS) }, hold).catch(() => resolve(false));
  });
}

/**
 * One transaction: resolves, with what was asked for, once it is on disk.
 * @param {Store[]} stores
 * @param {IDBTransactionMode} mode
 * @param {(objects: (store: Store) => IDBObjectStore) => IDBRequest | void} work
 * @returns {Promise<any>}
 */
async function within(stores, mode, work) {
  try {
    opened ??= open();
    const database = await opened;
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(stores, mode);
      const request = work((store) => transaction.objectStore(store));
      transaction.oncomplete = () => resolve(request?.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } catch (error) {
    throw storageFailed(error);
  }
}

/** @returns {Promise<IDBDatabase>} */
function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, VERSION);
    /** @param {unknown} error */
    const fail = (error) => {
      opened = null; // the next call tries again
      reject(error);
    };
    request.onupgradeneeded = () => {
      for (const [store, keyPath] of Object.entries(KEY_PATHS)) request.result.createObjectStore(store, { keyPath });
    };
    request.onerror = () => fail(request.error);
    request.onblocked = () => fail(new Error('another tab holds an older version open; close it'));
    request.onsuccess = () => {
      const database = request.result;
      // A newer version of the page in another tab wants to change the stores, or the browser has dropped them.
      database.onversionchange = () => database.close();
      database.onclose = () => {
        opened = null;
      };
      resolve(database);
    };
  });
}

/** @param {unknown} error */
function storageFailed(error) {
  const full = error instanceof DOMException && error.name === 'QuotaExceededError';
  const reason = error instanceof Error ? error.message : String(error);
  const message = full
    ? 'the browser has no room left for this page; remove kept models, chats or batches'
    : `the browser does not let this page keep anything here (${reason}); what you see is gone once the page closes`;
  return new PageloomError({ message, type: 'server_error', param: null, code: 'storage_failed' });
}
