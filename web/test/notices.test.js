import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recoveryInWords } from '../src/notices/engine_notices.js';
import { serveCommand } from '../src/server/local_server.js';

const gpu = {
  vendor: '',
  architecture: '',
  description: 'A GPU',
  adapter_class: /** @type {const} */ ('gpu'),
  f16: true,
};

/** @param {Partial<import('../src/protocol.js').Recovery>} recovery */
const words = (recovery) =>
  recoveryInWords({ state: 'recovered', requests: 8, seconds: 2.4, adapter: gpu, ...recovery });

test('a lost device and its return are each told in one line, with what goes on', () => {
  assert.deepEqual(words({ state: 'lost' }), {
    title: 'The GPU went away. Setting it up again',
    text: '8 requests will go on where they stopped.',
  });
  assert.deepEqual(words({}), {
    title: 'The GPU is back after 2 s',
    text: '8 requests go on where they stopped.',
  });
  assert.equal(words({ requests: 1 }).text, '1 request goes on where it stopped.');
  assert.equal(words({ requests: 0 }).text, 'Nothing was running.');
});

test('a return on a software adapter says that it is slow', () => {
  assert.match(words({ adapter: { ...gpu, adapter_class: 'software' } }).text ?? '', /software adapter, which is slow/);
});

test('the command that starts a worker for this page has its origin, and a port other than the usual', () => {
  assert.equal(serveCommand('http://localhost:8642'), 'pageloom serve --allow-origin http://localhost:8642');
  assert.equal(
    serveCommand('app://pageloom', 'http://127.0.0.1:9000'),
    'pageloom serve --port 9000 --allow-origin app://pageloom',
  );
  assert.equal(serveCommand('app://pageloom', 'nonsense'), 'pageloom serve --allow-origin app://pageloom');
});
