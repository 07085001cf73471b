import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linesOf, median, microseconds, ratios, readReport } from '../src/operators/bench_words.js';

const tabRow = {
  shape: 'decode  1/512 32/8 D=128',
  tier: 'direct-gpu',
  seconds: [3, 1, 2],
  attention_seconds: [1],
  reason: '',
  limit: 0.5,
};
/** @param {any[]} results */
const report = (...results) => ({ backend: 'tab', adapter: {}, results });

test('a row of WebGPU or CUDA is one line with its median, spread and limit', () => {
  const [line, refused] = linesOf(
    report(tabRow, { ...tabRow, seconds: [], attention_seconds: [], reason: 'too large' }),
  );
  assert.deepEqual(line, {
    shape: tabRow.shape,
    what: 'direct-gpu',
    seconds: 2,
    spread: 1,
    attention: 1,
    limit: 0.5,
    reason: '',
  });
  assert.deepEqual([refused?.seconds, refused?.reason], [null, 'too large']);
  const [cuda] = linesOf(
    report({ shape: 'prefill', what: 'fused, blocks of 16', seconds: [1, 2], limit: 1, reason: '' }),
  );
  assert.deepEqual([cuda?.what, cuda?.seconds], ['fused, blocks of 16', 1.5]);
});

test('a row of the CPU is a line for ours and one for the peer', () => {
  const shape = { part: 'decode', new: 1, total: 512, num_heads: 16, kv_num_heads: 8, storage: 'int8', block_size: 0 };
  const lines = linesOf(report({ shape, threads: 1, tier: 'flash', pairs: { ours: [1, 3], peer: [8] }, limit: 1 }));
  assert.deepEqual(
    lines.map(({ what, seconds }) => [what, seconds]),
    [
      ['flash', 2],
      ['the peer', 8],
    ],
  );
  assert.equal(lines[0]?.shape, 'decode T=512 16/8 int8, decode, threads: 1');
});

test('a comparison divides by the same computation of the same shape, and by no other', () => {
  const lines = linesOf(report(tabRow, { ...tabRow, tier: 'gather-then-flash' }));
  const others = linesOf(report({ ...tabRow, seconds: [4] }));
  assert.deepEqual(ratios(lines, others), [0.5, null]);
});

test('medians and microseconds are as people write them', () => {
  assert.equal(median([]), null);
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1]), 2.5);
  assert.deepEqual([1.23e-5, 0.0012, null].map(microseconds), ['12.3', '1,200', '']);
});

test('a file that is no export is refused in words', () => {
  assert.deepEqual(readReport('{"results": []}', 'results'), { results: [] });
  for (const text of ['', 'null', '{}', '{"cases": []}']) {
    assert.throws(() => readReport(text, 'results'), /no exported benchmark: it has no list of results/);
  }
});
