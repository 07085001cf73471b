/**
 * Model files from servers: what a server tells of a file, and the file itself from any byte on.
 * @import {OpenStream} from './storage.js'
 */

import { fetchOrSay, PageloomError } from './errors.js';

/** @typedef {{size: number, validator: string | null}} RemoteFile  `validator` is the server's ETag, or its date. */

/**
 * The file's size and version; null where no server answers and `optional` says that a stored copy can stand in.
 * @param {string} url
 * @param {boolean} optional
 * @returns {Promise<RemoteFile | null>}
 */
export async function askServer(url, optional) {
  /** @type {Response} */
  let response;
  try {
    response = await fetchOrSay(url, { method: 'HEAD' });
  } catch (error) {
    if (optional) return null;
    throw error;
  }
  if (!response.ok) throw cannotFetch(url, `HTTP ${response.status}`);
  const size = Number(response.headers.get('Content-Length'));
  if (!size) throw cannotFetch(url, 'the server does not tell its size');
  return { size, validator: validatorOf(response) };
}

/**
 * Opens the file where an earlier download of it ended, or from its start: where the server sends no parts of files, or
 * has another file there by now.
 * @param {string} url
 * @param {RemoteFile} file
 * @returns {OpenStream}
 */
export function downloadOf(url, file) {
  return async (done) => {
    if (done > 0) {
      const rest = await fetchOrSay(url, { headers: { Range: `bytes=${done}-` } });
      if (rest.body && isRest(rest, file, done)) return { stream: rest.body, start: done };
      await rest.body?.cancel();
    }
    const whole = await fetchOrSay(url);
    if (!whole.ok || !whole.body) throw cannotFetch(url, `HTTP ${whole.status}`);
    return { stream: whole.body, start: 0 };
  };
}

/**
 * Whether a response holds the bytes of this file from `done` to its end. A server of another origin may let the page
 * see neither Content-Range nor ETag: its Content-Length has to do then.
 * @param {Response} response
 * @param {RemoteFile} file
 * @param {number} done
 */
export function isRest({ status, headers }, file, done) {
  const range = headers.get('Content-Range');
  const length = headers.get('Content-Length');
  const told = { range: `bytes ${done}-${file.size - 1}/${file.size}`, length: `${file.size - done}` };
  const validator = validatorOf({ headers });
  return (
    status === 206 &&
    (range === null ? length === told.length : range === told.range) &&
    (validator === null || validator === file.validator)
  );
}

/** @param {{headers: Headers}} response */
function validatorOf({ headers }) {
  return headers.get('ETag') ?? headers.get('Last-Modified');
}

/**
 * @param {string} url
 * @param {string} reason
 */
export function cannotFetch(url, reason) {
  const message = `could not fetch the model from ${url}: ${reason}`;
  return new PageloomError({ message, type: 'invalid_request_error', param: 'model', code: 'invalid_argument' });
}
