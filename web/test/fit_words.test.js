import assert from 'node:assert/strict';
import { test } from 'node:test';
import { factsInWords, memoryInWords, roomInWords, verdictOf } from '../src/models/fit_words.js';

const WEIGHTS = {
  num_bytes: 1e9,
  largest: 'token_embd.weight',
  largest_bytes: 3e8,
  largest_shards: 3,
  binding_limit: 134217728,
};
const FACTS = { name: 'Small', architecture: 'llama', context_length: 8192, weights: WEIGHTS, warnings: [] };
const INSPECTED = { name: 'small.gguf', size: 1e9, done: 0, has_room: true, facts: FACTS, refusal: null };
const FIT = {
  dtype: 'f16',
  bytes_per_token: 20000,
  num_bytes: 320e6,
  num_blocks: 1000,
  block_size: 16,
  context_length: 8192,
};

test('a model fits whole, fits with less context than it was made for, or does not fit, with the reason', () => {
  assert.equal(verdictOf(INSPECTED, FIT).level, 'fits');
  const less = verdictOf(INSPECTED, { ...FIT, context_length: 4000 });
  assert.equal(less.title, 'Fits with a context of 4,000 tokens');
  assert.match(less.detail, /8,192 tokens, whose KV cache takes 163\.8 MB/);
  const message = 'two rows of 9 q8 weights take 18 bytes; this device binds at most 16 bytes';
  const refusal = { message, type: 'invalid_request_error', param: null, code: 'not_supported' };
  const not = verdictOf({ ...INSPECTED, facts: null, refusal }, null);
  assert.equal(not.level, 'not');
  assert.match(not.detail, /binds at most 16 bytes/);
});

test('a server that sends no parts of files leaves it open, and is named as the reason', () => {
  const { level, detail } = verdictOf({ ...INSPECTED, facts: null }, null);
  assert.equal(level, 'unknown');
  assert.match(detail, /sends no parts of files/);
  assert.match(detail, /begins anew/);
});

test('the facts name the largest matrix and in how many buffers it lies', () => {
  const facts = Object.fromEntries(factsInWords({ ...INSPECTED, done: 4e8 }));
  assert.equal(facts.File, 'small.gguf, 1.0 GB, 400.0 MB of it here');
  assert.match(facts['Largest matrix'] ?? '', /token_embd\.weight, 300\.0 MB in 3 buffers \(of up to 134\.2 MB here\)/);
});

test('the memory in words is that of a token, of all prompts, and with the weights', () => {
  assert.equal(
    memoryInWords(FACTS, FIT),
    'A token takes 20 kB of KV cache: room for 16,000 tokens over all prompts, such as 1 prompt of 8,192 tokens. ' +
      'With the weights 1.3 GB of GPU memory.',
  );
});

test('a copy that the browser has no room for is said before the download', () => {
  assert.equal(roomInWords(INSPECTED), '');
  assert.match(roomInWords({ ...INSPECTED, has_room: false, done: 4e8 }), /no room for the 600\.0 MB/);
});
