import assert from 'node:assert/strict';
import { test } from 'node:test';
import { batchInWords, errorInWords } from '../src/words.js';

test('rows that were stopped or failed are not counted as done', () => {
  assert.equal(batchInWords({ total: 1, done: 0, stopped: 0, failed: 0 }), '0 of 1 row done');
  assert.equal(batchInWords({ total: 8, done: 6, stopped: 1, failed: 0 }), '6 of 8 rows done, 1 stopped');
  assert.equal(batchInWords({ total: 8, done: 4, stopped: 2, failed: 2 }), '4 of 8 rows done, 2 stopped, 2 failed');
});

test('what is too much is named by what was asked for', () => {
  const titleOf = (/** @type {string | null} */ param) =>
    errorInWords({ message: 'm', type: 'invalid_request_error', param, code: 'capacity_exceeded' }).title;
  assert.equal(titleOf('prompt'), 'Too long');
  assert.equal(titleOf('num_blocks'), 'Too many pages for this GPU');
  assert.equal(titleOf(null), 'Too much at once');
});
