import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openModel, removeModel } from '../src/storage.js';

test('a key that no stored model can have is refused, whatever it points to', async () => {
  for (const key of ['../x', '', '0123456789abcdef01234567.json', 'A'.repeat(24), /** @type {any} */ (null)]) {
    const refusal = { name: 'PageloomError', code: 'invalid_argument', param: 'model' };
    await assert.rejects(openModel(key), refusal);
    await assert.rejects(removeModel(key), refusal);
  }
});
