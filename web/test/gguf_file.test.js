import assert from 'node:assert/strict';
import { test } from 'node:test';
import { requireGguf } from '../src/gguf_file.js';

/**
 * @param {string} magic
 * @param {number} version
 */
function fileOf(magic, version, size = 64) {
  const bytes = Buffer.alloc(64);
  bytes.write(magic);
  bytes.writeUInt32LE(version, 4);
  return new File([bytes.subarray(0, size)], 'mine.gguf');
}

test('a file that begins as GGUF does is let through', async () => {
  for (const version of [2, 3]) await requireGguf(fileOf('GGUF', version));
});

test('another file is refused by its name', async () => {
  /** @type {[File, RegExp][]} */
  const refused = [
    [fileOf('Dear', 3), /^mine\.gguf is not a GGUF file/],
    [fileOf('GGUF', 3, 0), /^mine\.gguf is not a GGUF file/],
    [fileOf('GGUF', 3, 23), /^mine\.gguf ends within its header/],
    [fileOf('GGUF', 1), /^mine\.gguf is GGUF of version 1; versions 2 and 3 are read/],
  ];
  for (const [file, message] of refused) {
    await assert.rejects(requireGguf(file), { code: 'bad_model_file', message });
  }
});
