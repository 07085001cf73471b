/** Whether a picked file can be a model at all, told before anything is closed or started for it. */

import { PageloomError } from './errors.js';

/** Magic, version, and the counts of tensors and metadata: the least that a GGUF file begins with, in bytes. */
const HEADER_BYTES = 24;
const VERSIONS = [2, 3];

/**
 * Refuses a file that does not begin as GGUF does (little-endian, version 2 or 3), as bad_model_file.
 * @param {File} file
 */
export async function requireGguf(file) {
  const head = new DataView(await file.slice(0, HEADER_BYTES).arrayBuffer());
  const isGguf = head.byteLength >= 4 && head.getUint32(0) === 0x47475546; // "GGUF"
  if (!isGguf) throw badFile(`${file.name} is not a GGUF file. Choose a file whose name ends in .gguf.`);
  if (head.byteLength < HEADER_BYTES) throw badFile(`${file.name} ends within its header. Download it again.`);
  const version = head.getUint32(4, true);
  if (!VERSIONS.includes(version)) {
    throw badFile(`${file.name} is GGUF of version ${version}; versions ${VERSIONS.join(' and ')} are read.`);
  }
}

/** @param {string} message */
function badFile(message) {
  return new PageloomError({ message, type: 'invalid_request_error', param: 'model', code: 'bad_model_file' });
}
