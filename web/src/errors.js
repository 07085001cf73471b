/** @import {ErrorObject} from './protocol.js' */

/** @type {Record<string, number>} */
const HTTP_STATUS = { invalid_request_error: 400, server_error: 500 };

/** An error with OpenAI's fields, whichever side of the worker it comes from. */
export class PageloomError extends Error {
  /** @param {ErrorObject} error */
  constructor(error) {
    super(error.message);
    this.name = 'PageloomError';
    this.type = error.type;
    this.param = error.param;
    this.code = error.code;
    this.status = error.code === 'device_lost' ? 503 : (HTTP_STATUS[error.type] ?? 500);
  }

  /** @returns {ErrorObject} */
  get error() {
    return { message: this.message, type: this.type, param: this.param, code: this.code };
  }
}

/**
 * @param {string} message
 * @param {string | null} [param]
 */
export function invalidArgument(message, param = null) {
  return new PageloomError({ message, type: 'invalid_request_error', param, code: 'invalid_argument' });
}

/**
 * `fetch`, which says in plain words where nothing answers (the Fetch standard makes that a TypeError).
 * @param {string | URL} url
 * @param {RequestInit} [init]
 */
export async function fetchOrSay(url, init) {
  try {
    return await fetch(url, init);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const { origin, host } = new URL(url);
    const message =
      origin === self.location.origin
        ? 'the server that this page came from does not answer; start it again with make demo, then reload the page'
        : `${host} does not answer, or does not let this page read from it`;
    throw new PageloomError({ message, type: 'server_error', param: null, code: 'no_answer' });
  }
}

/**
 * Codes of the errors that the bridge throws, by their names.
 * @type {Record<string, string>}
 */
const BRIDGE_CODES = {
  InvalidArgument: 'invalid_argument',
  NotSupported: 'not_supported',
  BadModelFile: 'bad_model_file',
  DeviceError: 'device_error',
  OutOfMemory: 'out_of_memory',
  DeviceLost: 'device_lost',
};
const SERVER_CODES = ['device_error', 'out_of_memory', 'device_lost'];

/**
 * The error object of anything thrown.
 * @param {unknown} thrown
 * @returns {ErrorObject}
 */
export function errorObject(thrown) {
  if (thrown instanceof PageloomError) return thrown.error;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const code = thrown instanceof Error ? BRIDGE_CODES[thrown.name] : undefined;
  if (code) {
    const type = SERVER_CODES.includes(code) ? 'server_error' : 'invalid_request_error';
    return { message, type, param: null, code };
  }
  return { message, type: 'server_error', param: null, code: 'internal_error' };
}
