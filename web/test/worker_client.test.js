import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WorkerClient } from '../src/worker_client.js';

/** The far end of a client: what was posted, and a way to reply. */
class FarEnd {
  /** @type {import('../src/protocol.js').Call[][]} */
  posted = [];
  onmessage = (/** @type {{data: unknown}} */ _) => {};
  onerror = (/** @type {{message: string}} */ _) => {};
  terminated = false;

  /** @param {any} calls */
  postMessage(calls) {
    this.posted.push(structuredClone(calls));
  }

  terminate() {
    this.terminated = true;
  }

  /** @param {object[]} replies */
  reply(...replies) {
    this.onmessage({ data: replies });
  }
}

function connected() {
  const worker = new FarEnd();
  return { worker, client: new WorkerClient(/** @type {any} */ (worker), 'a worker') };
}

test('a call gets its events and then its result', async () => {
  const { worker, client } = connected();
  /** @type {string[]} */
  const events = [];
  const result = client.call('load', { a: 1 }, (event) => events.push(event));
  const [[call]] = /** @type {[[import('../src/protocol.js').Call]]} */ (worker.posted);
  assert.deepEqual({ method: call.method, params: call.params }, { method: 'load', params: { a: 1 } });
  worker.reply({ id: call.id, event: 'one' }, { id: call.id, event: 'two' }, { id: call.id, result: 'done' });
  assert.equal(await result, 'done');
  assert.deepEqual(events, ['one', 'two']);
});

test('jobs made together leave as one message and are answered each for itself', async () => {
  const { worker, client } = connected();
  const [first, second] = client.generate([{ fields: { prompt: 'a' } }, { fields: { prompt: 'b' } }]);
  assert.equal(worker.posted.length, 1);
  assert.equal(worker.posted[0]?.length, 2);
  const error = { message: 'too long', type: 'invalid_request_error', param: null, code: 'capacity_exceeded' };
  worker.reply({ id: second?.id, error }, { id: first?.id, result: 'a' });
  assert.equal(await first?.result, 'a');
  await assert.rejects(async () => second?.result, { name: 'PageloomError', code: 'capacity_exceeded', status: 400 });
});

test('a call on which all depends closes its client where it fails or is given up, and not where it succeeds', async () => {
  const served = connected();
  const answer = served.client.callOrClose('load', {}, { signal: new AbortController().signal });
  served.worker.reply({ id: 1, result: 'done' });
  assert.equal(await answer, 'done');
  assert.ok(!served.worker.terminated);

  const failed = connected();
  const failure = failed.client.callOrClose('load', {});
  failed.worker.reply({ id: 1, error: { message: 'no', type: 'server_error', param: null, code: 'bad_model_file' } });
  await assert.rejects(failure, { code: 'bad_model_file' });
  assert.ok(failed.worker.terminated);

  const left = connected();
  const abort = new AbortController();
  const given = left.client.callOrClose('load', {}, { signal: abort.signal });
  abort.abort(new Error('enough'));
  await assert.rejects(given, /enough/);
  assert.ok(left.worker.terminated);
  const late = connected();
  await assert.rejects(late.client.callOrClose('load', {}, { signal: abort.signal }), /enough/);
  assert.deepEqual([late.worker.posted, late.worker.terminated], [[], true]);
});

test('closing rejects what is pending and what is called later', async () => {
  const { worker, client } = connected();
  const pending = client.call('stats');
  client.close();
  assert.ok(worker.terminated);
  await assert.rejects(pending, { code: 'engine_closed' });
  await assert.rejects(client.call('stats'), { code: 'engine_closed' });
});

test('a worker that fails to start rejects what is pending', async () => {
  const { worker, client } = connected();
  const pending = client.call('load');
  worker.onerror({ message: '' });
  await assert.rejects(pending, /its script did not load/);
});

test('parameters that cannot be cloned reject their call and leave nothing pending', async () => {
  const { worker, client } = connected();
  await assert.rejects(client.call('load', { f: () => {} }), { name: 'DataCloneError' });
  assert.equal(worker.posted.length, 0);
});
