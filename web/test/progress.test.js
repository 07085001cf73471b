import assert from 'node:assert/strict';
import { test } from 'node:test';
import { durationInWords, Rate, timeLeft } from '../src/batch/progress.js';

test('the rate is that of the last five seconds', () => {
  const rate = new Rate();
  assert.equal(rate.perSecond(0), 0);
  for (let now = 0; now < 20_000; now += 100) rate.addToken(now);
  for (let now = 20_000; now < 30_000; now += 50) rate.addToken(now);
  assert.ok(Math.abs(rate.perSecond(30_000) - 20) < 0.5);
  assert.equal(rate.perSecond(60_000), 0);
});

test('what is left is told by the rows that have ended, and before that as the most it can be', () => {
  const job = { max_tokens: 100 };
  const live = (/** @type {number} */ tokens) => ({ live: { job, tokens } });
  const ended = { live: null, outcome: { tokens: { completion: 20 } } };
  /** @param {any[]} rows */
  const left = (...rows) => timeLeft(rows, 10);
  assert.deepEqual(left(live(0), live(50)), { seconds: 15, atMost: true });
  assert.deepEqual(left(ended, live(0), live(10)), { seconds: 3, atMost: false });
  assert.deepEqual(left(ended, live(30)), { seconds: 3.5, atMost: false });
  assert.equal(timeLeft(/** @type {any} */ ([live(0)]), 0), null);
  assert.equal(left({ live: { job: {}, tokens: 0 } }), null);
});

test('durations are told as precisely as they matter', () => {
  assert.deepEqual([0.04, 9.94, 45, 600, 9000].map(durationInWords), ['0.0 s', '9.9 s', '45 s', '10 min', '2.5 h']);
});
