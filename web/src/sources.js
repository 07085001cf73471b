/** What the bytes of a model are read from, a range at a time: a Blob or File, or a URL whose server serves ranges. */

import { GpuError } from './gpu_error.js';

/** A server that ignores ranges sends everything at once; up to this many bytes are then kept as a Blob. */
const LARGEST_WHOLE = 2 ** 30;

/**
 * @param {number} offset
 * @param {number} length
 * @param {number} size
 */
function checkRange(offset, length, size) {
  if (offset < 0 || length < 0 || offset + length > size) {
    const range = `bytes ${offset} to ${offset + length} (exclusive)`;
    throw new GpuError('BadModelFile', `${range} lie outside the source of ${size} bytes`);
  }
}

export class BlobSource {
  #blob;

  /** @param {Blob} blob */
  constructor(blob) {
    this.#blob = blob;
    this.size = blob.size;
  }

  /**
   * @param {number} offset
   * @param {number} length
   */
  async read(offset, length) {
    checkRange(offset, length, this.size);
    try {
      return await this.#blob.slice(offset, offset + length).arrayBuffer();
    } catch (error) {
      throw new GpuError('BadModelFile', `the file can no longer be read: ${error}`);
    }
  }
}

export class UrlSource {
  #url;
  #entityTag;

  /**
   * @param {string} url
   * @param {number} size
   * @param {string | null} entityTag
   */
  constructor(url, size, entityTag) {
    this.#url = url;
    this.#entityTag = entityTag;
    this.size = size;
  }

  /**
   * Asks for one byte to learn the size. A server that ignores ranges is refused, unless its whole answer fits a Blob.
   * @param {string} url
   * @returns {Promise<UrlSource | BlobSource>}
   */
  static async open(url) {
    const response = await fetchRange(url, 0, 1);
    if (response.status === 206) {
      const size = totalOf(response);
      if (size === null) throw new GpuError('NotSupported', `the server of ${url} does not tell the size of the file`);
      await response.body?.cancel();
      return new UrlSource(url, size, response.headers.get('ETag'));
    }
    const length = Number(response.headers.get('Content-Length') ?? Number.NaN);
    if (length <= LARGEST_WHOLE) return new BlobSource(await response.blob());
    await response.body?.cancel();
    throw new GpuError('NotSupported', `the server of ${url} ignores byte ranges; download the file and open it`);
  }

  /**
   * @param {number} offset
   * @param {number} length
   */
  async read(offset, length) {
    checkRange(offset, length, this.size);
    if (length === 0) return new ArrayBuffer(0);
    const response = await fetchRange(this.#url, offset, length);
    const changed = totalOf(response) !== this.size || response.headers.get('ETag') !== this.#entityTag;
    if (response.status !== 206 || changed) {
      await response.body?.cancel();
      throw new GpuError('BadModelFile', `the file at ${this.#url} changed while it was read: load it again`);
    }
    const bytes = await response.arrayBuffer();
    if (bytes.byteLength !== length) {
      throw new GpuError('BadModelFile', `${this.#url} sent ${bytes.byteLength} bytes where ${length} were asked for`);
    }
    return bytes;
  }
}

/**
 * Whether the server of a URL sends parts of files.
 * @param {string} url
 */
export async function servesRanges(url) {
  const response = await fetchRange(url, 0, 1);
  await response.body?.cancel();
  return response.status === 206;
}

/**
 * A source that tells after each read how many bytes it has delivered, of how many it has.
 * @param {{size: number, read: (offset: number, length: number) => Promise<ArrayBuffer>}} source
 * @param {(delivered: number, size: number) => void} onProgress
 */
export function withProgress(source, onProgress) {
  let delivered = 0;
  return {
    size: source.size,
    /**
     * @param {number} offset
     * @param {number} length
     */
    async read(offset, length) {
      const bytes = await source.read(offset, length);
      delivered += length;
      onProgress(delivered, source.size);
      return bytes;
    },
  };
}

/**
 * @param {string} url
 * @param {number} offset
 * @param {number} length
 */
async function fetchRange(url, offset, length) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url, { headers: { Range: `bytes=${offset}-${offset + length - 1}` } });
  } catch {
    throw new GpuError('BadModelFile', `cannot read ${url}: its server does not answer, or not to this page`);
  }
  if (!response.ok) throw new GpuError('BadModelFile', `cannot read ${url}: HTTP ${response.status}`);
  return response;
}

/**
 * The whole size that a partial answer tells.
 * @param {Response} response
 */
function totalOf(response) {
  const total = response.headers.get('Content-Range')?.split('/')[1];
  return total && /^\d+$/.test(total) ? Number(total) : null;
}
