import assert from 'node:assert/strict';
import { test } from 'node:test';
import { streamOf } from '../src/stream.js';

/** @param {AsyncIterable<number>} stream */
async function collect(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

test('items pushed before and during the reading come in order', async () => {
  /** @type {import('../src/stream.js').Stream<number>} */
  const stream = streamOf();
  stream.push(1);
  stream.push(2);
  const read = collect(stream);
  await Promise.resolve();
  stream.push(3);
  stream.end();
  assert.deepEqual(await read, [1, 2, 3]);
});

test('a failure comes after the items before it', async () => {
  /** @type {import('../src/stream.js').Stream<number>} */
  const stream = streamOf();
  stream.push(1);
  stream.fail(new Error('gone'));
  const items = stream[Symbol.asyncIterator]();
  assert.deepEqual(await items.next(), { value: 1, done: false });
  await assert.rejects(async () => items.next(), /gone/);
});
