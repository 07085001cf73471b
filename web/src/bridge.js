/** Everything that Python asks of JavaScript, as one module: the page's worker passes it in, the wheel carries it built. */

import { BlobSource, UrlSource } from './sources.js';

export * from './gpu.js';
export { createTokenizer } from './tokenizer.js';

/**
 * A ranged source over a File, a Blob, or a URL; what already is one comes back as it is.
 * @param {Blob | string | {size: number, read: (offset: number, length: number) => Promise<ArrayBuffer>}} model
 */
export async function openSource(model) {
  if (typeof model === 'string') return UrlSource.open(model);
  if (model instanceof Blob) return new BlobSource(model);
  return model;
}
