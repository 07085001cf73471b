import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FIRST_SETTINGS, outcomeOf } from '../src/batch/answer.js';
import { wholeOf } from '../src/batch/kept_batch.js';

const HEAD = {
  id: 'batch',
  settings: FIRST_SETTINGS,
  reading: { format: 'csv', header: true },
  columns: ['a', 'b'],
  count: 3,
  model: { name: 'tiny.gguf', choice: { stored: 'key' } },
};
const USAGE = { prompt_tokens: 3, completion_tokens: 2, cached_tokens: 1 };
const JOB = { prompt: 'x' };
const OUTCOMES = [
  null,
  outcomeOf(JOB, { index: 0, error: { message: 'no', type: 'server_error', param: null, code: null } }),
  outcomeOf(
    JOB,
    /** @type {any} */ ({
      index: 0,
      text: 'good',
      finish_reason: 'stop',
      usage: USAGE,
      label_probabilities: { good: 1 },
    }),
  ),
];
const ROWS = OUTCOMES.map((outcome, index) => ({ run: 'batch', index, values: { a: `${index}`, b: '' }, outcome }));

test('a batch that is whole comes back as it was kept, without what is beyond its count', () => {
  assert.deepEqual(wholeOf(HEAD, [...ROWS, 'beyond']), { head: HEAD, rows: ROWS, problem: '' });
  const none = { ...HEAD, count: 0, columns: [], model: { name: 'x', choice: null } };
  assert.deepEqual(wholeOf(none, []), { head: none, rows: [], problem: '' });
});

test('rows and answers that are damaged are left out and counted', () => {
  for (const damage of [null, 7, { values: null }, { values: { a: 'x' } }, { values: { a: 'x', b: 5 } }]) {
    const { rows, problem } = wholeOf(HEAD, [ROWS[0], damage, ROWS[2]]);
    assert.deepEqual(rows, [ROWS[0], ROWS[2]]);
    assert.match(problem, /left out: 1 row\.$/);
  }
  const whole = /** @type {object} */ (OUTCOMES[2]);
  const changes = [{ state: 'lost' }, { job: 5 }, { text: null }, { error: 'no' }, { probabilities: { good: '1' } }];
  for (const change of [...changes, { tokens: {} }, { seconds: '1' }]) {
    const { rows, problem } = wholeOf(HEAD, [ROWS[0], { ...ROWS[1], outcome: { ...whole, ...change } }]);
    assert.deepEqual(rows, [ROWS[0], { ...ROWS[1], outcome: null }], JSON.stringify(change));
    assert.match(problem, /left out: 1 row, 1 answer\.$/);
  }
});

test('a batch whose settings cannot be read is left out as a whole', () => {
  const changes = [
    { settings: null },
    { settings: { ...FIRST_SETTINGS, mode: 'prose' } },
    { settings: { ...FIRST_SETTINGS, template: 5 } },
    { settings: { ...FIRST_SETTINGS, seed: '7' } },
    { reading: { format: 'constructor', header: true } },
    { reading: null },
    { columns: [1] },
    { count: -1 },
    { model: null },
    { model: { name: 'x', choice: 'another' } },
  ];
  for (const head of [undefined, 'x', ...changes.map((change) => ({ ...HEAD, ...change }))]) {
    const { head: whole, rows, problem } = wholeOf(head, ROWS);
    assert.deepEqual([whole, rows], [null, []], JSON.stringify(head));
    assert.match(problem, /could not be read/);
  }
});
