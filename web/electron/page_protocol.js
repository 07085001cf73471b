/**
 * The page's own protocol: `app://pageloom/…` is the built page, the built-in model, and the model files that the user
 * has opened. Nothing else of the disk can be named.
 */

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, extname, join, relative, sep } from 'node:path';
import { ReadableStream } from 'node:stream/web';
import { HEADERS } from '../policy.js';

export const SCHEME = 'app';
export const HOST = 'pageloom';
/** The page's origin, which a local worker is told to allow. */
export const ORIGIN = `${SCHEME}://${HOST}`;

/** To be told before the app is ready. */
export const PRIVILEGES = {
  scheme: SCHEME,
  privileges: { standard: true, secure: true, supportFetchAPI: true, stream: true, codeCache: true },
};

/** @type {Record<string, string>} */
const MEDIA_TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.mjs': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};

export class PageProtocol {
  #page;
  #models;
  /** @type {Map<string, string>} Files that the user has opened, by the first part of their path. */
  #opened = new Map();

  /**
   * @param {string} page  The folder of the built page.
   * @param {string} models  The folder of the built-in model.
   */
  constructor(page, models) {
    this.#page = page;
    this.#models = models;
  }

  /**
   * Lets the page read one file, and returns the address for it.
   * @param {string} path
   */
  open(path) {
    const known = [...this.#opened].find(([, other]) => other === path);
    const key = known?.[0] ?? `${this.#opened.size + 1}`;
    this.#opened.set(key, path);
    return `${ORIGIN}/opened/${key}/${encodeURIComponent(basename(path))}`;
  }

  /**
   * The file that an address names, or null.
   * @param {string} address
   */
  find(address) {
    const url = URL.canParse(address) ? new URL(address) : null;
    if (url?.protocol !== `${SCHEME}:` || url.host !== HOST) return null;
    const parts = decoded(url.pathname)?.slice(1).split('/');
    // `..` is resolved in an address already; what is left of it was hidden by its encoding.
    if (!parts || parts.some((part) => part === '..' || /[\\\0]/.test(part))) return null;
    const [first, ...rest] = parts;
    if (first === 'opened') return this.#opened.get(rest[0] ?? '') ?? null;
    if (first === 'model') return below(this.#models, rest);
    return below(this.#page, parts.join('/') === '' ? ['index.html'] : parts);
  }

  /**
   * A file that was opened is never a document or a script of the page's origin, whatever it is called.
   * @param {string} path
   */
  #typeOf(path) {
    const isOpened = [...this.#opened.values()].includes(path);
    return (!isOpened && MEDIA_TYPES[extname(path)]) || 'application/octet-stream';
  }

  /**
   * @param {Pick<Request, 'url' | 'method' | 'headers'>} request
   * @returns {Promise<Response>}
   */
  async answer({ url, method, headers }) {
    if (method !== 'GET' && method !== 'HEAD') return new Response(null, { status: 405 });
    const path = this.find(url);
    const found = path === null ? null : await stat(path).catch(() => null);
    if (path === null || !found?.isFile()) return new Response(null, { status: 404 });
    const range = rangeOf(headers.get('Range'), found.size);
    if (range === 'outside') {
      return new Response(null, { status: 416, headers: { 'Content-Range': `bytes */${found.size}` } });
    }
    const { start, end } = range ?? { start: 0, end: found.size - 1 };
    const fields = new Headers({
      ...(HEADERS[basename(path)] ?? HEADERS['*']),
      'Content-Type': this.#typeOf(path),
      'Content-Length': `${end - start + 1}`,
      'Accept-Ranges': 'bytes',
      ETag: `"${found.mtimeMs.toString(16)}-${found.size.toString(16)}"`,
    });
    if (range) fields.set('Content-Range', `bytes ${start}-${end}/${found.size}`);
    const empty = method === 'HEAD' || found.size === 0;
    const body = empty ? null : ReadableStream.from(createReadStream(path, { start, end }));
    return new Response(/** @type {any} */ (body), { status: range ? 206 : 200, headers: fields });
  }
}

/** @param {string} path */
function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return null;
  }
}

/**
 * @param {string} folder
 * @param {string[]} parts
 */
function below(folder, parts) {
  const path = join(folder, ...parts);
  const inside = relative(folder, path);
  return inside === '' || inside === '..' || inside.startsWith(`..${sep}`) ? null : path;
}

/**
 * The bytes that a Range header asks for, both ends inclusive; null is all, for no header and for one not understood.
 * @param {string | null} header
 * @param {number} size
 */
export function rangeOf(header, size) {
  const match = header?.match(/^bytes=(\d*)-(\d*)$/);
  const [, first = '', last = ''] = match ?? [];
  if (first === '' && last === '') return null;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return start > end || start >= size ? 'outside' : { start, end };
}
