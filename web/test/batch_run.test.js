import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FIRST_SETTINGS, jobOf } from '../src/batch/answer.js';
import { BatchRun, needsRun, stateOf } from '../src/batch/batch_run.js';
import { arranged } from '../src/batch/order.js';

const USAGE = { prompt_tokens: 3, completion_tokens: 2, cached_tokens: 0 };
const TIMINGS = { admitted: 1, first_token: 2, finished: 3.5 };

/** An engine whose answers the test gives. */
function engineDouble() {
  /** @type {any[]} */
  const calls = [];
  /**
   * @param {any[]} jobs
   * @param {any} options
   */
  const batch = (jobs, options) =>
    new Promise((resolve) => {
      calls.push({ jobs, ...options, end: resolve });
    });
  return { calls, engine: /** @type {any} */ ({ batch }) };
}

/** @param {string} template */
const asking = (template) => (/** @type {Record<string, string>} */ values) =>
  jobOf({ ...FIRST_SETTINGS, template }, values);

/** @param {string[]} words */
function runOf(...words) {
  /** @type {number[]} */
  const changed = [];
  const run = new BatchRun({ onProgress: () => {}, onChange: ({ index }) => changed.push(index) });
  run.setTable({ columns: ['word'], rows: words.map((word) => ({ word })) });
  run.askWith(asking('say {word}'));
  changed.length = 0;
  return { run, changed };
}

/**
 * @param {any} call
 * @param {number} index
 * @param {string} text
 */
function answer(call, index, text) {
  call.onText(index, text);
  call.onRow({ index, text, finish_reason: 'stop', usage: USAGE, timings: TIMINGS, prompt_ids: [], output_ids: [] });
}

/** @param {BatchRun} run */
const states = (run) => run.rows.map(stateOf);

test('rows go from not run over waiting and running to done, each by itself', () => {
  const { run, changed } = runOf('a', 'b');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  assert.deepEqual(
    calls[0].jobs.map((/** @type {any} */ job) => [job.messages[0].content, job.label]),
    [
      ['say a', 'Row 1'],
      ['say b', 'Row 2'],
    ],
  );
  assert.deepEqual(states(run), ['waiting', 'waiting']);
  calls[0].onText(1, 'B');
  assert.deepEqual(states(run), ['waiting', 'running']);
  answer(calls[0], 1, 'B!');
  assert.deepEqual(states(run), ['waiting', 'done']);
  assert.deepEqual(changed, [1]);
  assert.deepEqual([run.rows[1]?.outcome?.text, run.rows[1]?.outcome?.seconds], ['B!', 2.5]);
});

test('a row is stopped alone, and asked again alone', () => {
  const { run } = runOf('a', 'b');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  run.stop(run.rows.slice(0, 1));
  assert.deepEqual(
    calls[0].jobs.map((/** @type {any} */ job) => job.signal.aborted),
    [true, false],
  );
  calls[0].onRow({ index: 0, text: 'half', finish_reason: 'abort', usage: USAGE });
  assert.deepEqual(states(run), ['stopped', 'waiting']);
  run.start(engine, run.rows);
  assert.equal(calls[1].jobs.length, 1);
  answer(calls[1], 0, 'whole');
  assert.deepEqual(states(run), ['done', 'waiting']);
});

test('an error fails its row, but one of an engine that was closed leaves it to be run', () => {
  const { run } = runOf('a', 'b');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  const error = { message: 'too long', type: 'invalid_request_error', param: 'prompt', code: 'capacity_exceeded' };
  calls[0].onRow({ index: 0, error });
  calls[0].onRow({ index: 1, error: { ...error, code: 'engine_closed' } });
  assert.deepEqual(states(run), ['failed', 'not run']);
  assert.deepEqual(run.rows[0]?.outcome?.error, error);
  assert.deepEqual(run.rows.map(needsRun), [true, true]);
  run.askWith(asking('shout {word}'));
  assert.deepEqual(states(run), ['failed', 'not run']);
});

test('what answers another question than the one now asked is outdated, until it is asked again', () => {
  const { run } = runOf('a', 'b');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  answer(calls[0], 0, 'A');
  answer(calls[0], 1, 'B');
  run.askWith(asking('shout {word}'));
  assert.deepEqual(states(run), ['outdated', 'outdated']);
  run.askWith(null);
  run.askWith(asking('say {word}'));
  assert.deepEqual(states(run), ['done', 'done']);
  const [first] = run.rows;
  assert.ok(first);
  run.edit(first, 'word', 'c');
  assert.deepEqual(states(run), ['outdated', 'done']);
  run.edit(first, 'word', 'a');
  assert.deepEqual(states(run), ['done', 'done']);
});

test('rows that stay where they were keep their answers when other rows are taken', () => {
  const { run, changed } = runOf('a', 'b', 'c');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  answer(calls[0], 0, 'A');
  changed.length = 0;
  run.setTable({ columns: ['word'], rows: [{ word: 'a' }, { word: 'x' }] });
  assert.deepEqual(states(run), ['done', 'not run']);
  assert.deepEqual(changed, [1]);
  assert.ok(calls[0].jobs[1].signal.aborted && calls[0].jobs[2].signal.aborted);
  answer(calls[0], 1, 'late');
  assert.deepEqual(states(run), ['done', 'not run']);
});

test('what comes late of a row that was replaced is not kept in the place of the new one', () => {
  const { run, changed } = runOf('a', 'b');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  run.setTable({ columns: ['word'], rows: [{ word: 'x' }] });
  changed.length = 0;
  for (const index of [0, 1]) calls[0].onRow({ index, text: 'half', finish_reason: 'abort', usage: USAGE });
  assert.deepEqual(changed, []);
});

test('answers that were cleared and come back are worth keeping again', () => {
  const { run, changed } = runOf('a', 'b');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows);
  for (const index of [0, 1]) answer(calls[0], index, 'A');
  const outcomes = run.rows.map(({ outcome }) => outcome);
  run.clearOutcomes();
  changed.length = 0;
  run.restore(outcomes);
  assert.deepEqual(states(run), ['done', 'done']);
  assert.deepEqual(changed, [0, 1]);
});

test('rows are shown by state, by what they say and in the order of a column', () => {
  const { run } = runOf('b10', 'b9', 'a');
  const { engine, calls } = engineDouble();
  run.start(engine, run.rows.slice(0, 2));
  answer(calls[0], 0, 'Found');
  /** @param {Partial<Parameters<typeof arranged>[1]>} choice */
  const shown = (choice) =>
    arranged(run.rows, { group: 'all', search: '', sorting: null, ...choice }).map(({ index }) => index);
  assert.deepEqual(shown({}), [0, 1, 2]);
  assert.deepEqual(shown({ group: 'done' }), [0]);
  assert.deepEqual(shown({ group: 'running' }), [1]);
  assert.deepEqual(shown({ group: 'to run' }), [2]);
  assert.deepEqual(shown({ search: ' found ' }), [0]);
  assert.deepEqual(shown({ search: 'B' }), [0, 1]);
  const by = (/** @type {any} */ row) => row.values.word;
  assert.deepEqual(shown({ sorting: { by, descending: false } }), [2, 1, 0]);
  assert.deepEqual(shown({ sorting: { by, descending: true } }), [0, 1, 2]);
});
