import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeRate, firstTokens, median, sharedShare, stepsInWords, timeInWords } from '../src/inside/figures.js';
import { RecentRate } from '../src/recent_rate.js';

/** @param {Partial<import('../src/protocol.js').EndedView>} changes */
const ended = (changes) => ({
  id: '1',
  prompt_tokens: 8,
  cached_tokens: 0,
  output_tokens: 11,
  finish_reason: 'stop',
  first_token: 0.5,
  finished: 2.5,
  ...changes,
});

test('the median is the middle value, or the mean of the two in the middle', () => {
  assert.equal(median([]), null);
  assert.equal(median([5]), 5);
  assert.equal(median([9, 1, 5]), 5);
  assert.equal(median([9, 1, 5, 3]), 4);
});

test('the time to the first token counts the requests that had one', () => {
  const requests = [ended({}), ended({ first_token: null }), ended({ first_token: 1.5 }), ended({ first_token: 0.7 })];
  assert.deepEqual(firstTokens(requests), { median: 0.7, slowest: 1.5, count: 3 });
  assert.equal(firstTokens([ended({ first_token: null })]), null);
});

test('the rate of an answer leaves out its first token and the wait for it', () => {
  assert.equal(decodeRate(ended({})), 5);
  assert.equal(decodeRate(ended({ output_tokens: 1 })), null);
  assert.equal(decodeRate(ended({ first_token: null, output_tokens: 0 })), null);
});

test('the share of prompt tokens that were not computed again is of all prompt tokens', () => {
  assert.equal(sharedShare({ cached_tokens: 30, prefill_tokens: 10 }), 0.75);
  assert.equal(sharedShare({ cached_tokens: 0, prefill_tokens: 0 }), null);
});

test('the steps in words have the totals, and the median and the longest time', () => {
  const step = { index: 0, num_sequences: 2, prefill_tokens: 30, decode_tokens: 1, milliseconds: 40 };
  const steps = [step, { ...step, prefill_tokens: 0, decode_tokens: 2, milliseconds: 20 }];
  assert.equal(
    stepsInWords(steps),
    'The last 2 steps computed 30 prompt tokens and 3 answer tokens, up to 2 requests at once. ' +
      'A step took 30 ms in the median and 40 ms at most.',
  );
  assert.equal(timeInWords(1.25), '1.3 s');
  assert.equal(timeInWords(12.4), '12 s');
});

test('the recent rate is of the last busy second and stands still while nothing runs', () => {
  const rate = new RecentRate();
  assert.equal(rate.update({ busy_seconds: 0.4, output_tokens: 10 }), 0);
  assert.equal(rate.update({ busy_seconds: 2, output_tokens: 100 }), 50);
  assert.equal(rate.update({ busy_seconds: 2, output_tokens: 100 }), 50);
  assert.equal(rate.update({ busy_seconds: 3, output_tokens: 110 }), 10);
});
