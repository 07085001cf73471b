/**
 * `pageloom serve` on this machine, as the page asks it: every refusal in words that say what to do.
 */

import { invalidArgument, PageloomError } from '../errors.js';

/** Where `pageloom serve` answers unless it is told otherwise. */
export const USUAL_ADDRESS = 'http://127.0.0.1:8643';

/** The names that the page's policy and the server allow. */
const LOOPBACK = ['127.0.0.1', 'localhost'];

/** @typedef {{status: string, model: string, backend: string}} Health */

/**
 * The command that starts a server which this page may ask.
 * @param {string} origin  Of the page.
 * @param {string} [address]
 */
export function serveCommand(origin, address = USUAL_ADDRESS) {
  const port = portOf(address);
  const option = port && port !== portOf(USUAL_ADDRESS) ? ` --port ${port}` : '';
  return `pageloom serve${option} --allow-origin ${origin}`;
}

/** @param {string} address */
function portOf(address) {
  return URL.canParse(address) ? new URL(address).port : '';
}

export class LocalServer {
  #token;

  /**
   * @param {string} address  Such as `http://127.0.0.1:8643`.
   * @param {string} [token]
   */
  constructor(address, token = '') {
    const url = URL.canParse(address) ? new URL(address) : null;
    if (url?.protocol !== 'http:' || !LOOPBACK.includes(url.hostname)) {
      throw invalidArgument(`the address is ${address || 'empty'}; it has to be like ${USUAL_ADDRESS}`, 'address');
    }
    this.address = url.origin;
    this.#token = token;
  }

  /** @returns {Promise<Health>} */
  async health() {
    return (await this.ask('/healthz')).json();
  }

  /**
   * A response, or the error that the server answers with.
   * @param {string} path
   * @param {{body?: object, signal?: AbortSignal, post?: boolean}} [options]
   * @returns {Promise<Response>}
   */
  async ask(path, { body, signal, post = body !== undefined } = {}) {
    /** @type {Record<string, string>} */
    const headers = {};
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    /** @type {RequestInit} */
    const init = { method: post ? 'POST' : 'GET', headers };
    if (body !== undefined) init.body = JSON.stringify(body);
    if (signal) init.signal = signal;
    /** @type {Response} */
    let response;
    try {
      response = await fetch(this.address + path, init);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw noAnswer(this.address);
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

/**
 * A browser tells a page neither that nothing listens nor that it was refused for its origin.
 * @param {string} address
 */
function noAnswer(address) {
  const command = serveCommand(location.origin, address);
  const mixed =
    location.protocol === 'https:' ? ' Some browsers let no https page ask this machine; Chrome and Edge do.' : '';
  const message = `nothing at ${address} answers this page. Start it with: ${command}${mixed}`;
  return new PageloomError({ message, type: 'server_error', param: 'address', code: 'no_answer' });
}

/** @param {Response} response */
async function refusal(response) {
  const body = await response.json().catch(() => null);
  const error = body?.error ?? { message: `HTTP ${response.status}`, type: 'server_error', param: null, code: null };
  return new PageloomError(error);
}
