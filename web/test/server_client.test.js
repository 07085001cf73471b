import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { afterEach, test } from 'node:test';
import { serverEvents } from '../src/server/events.js';
import { LocalServer } from '../src/server/local_server.js';
import { ServerClient } from '../src/server/server_client.js';

/** @type {import('node:http').Server[]} */
const servers = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/**
 * A server of these tests' own; returns its address.
 * @param {import('node:http').RequestListener} listener
 * @returns {Promise<string>}
 */
async function serving(listener) {
  const server = createServer(listener);
  servers.push(server);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  return `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
}

/**
 * @template Item
 * @param {AsyncIterable<Item>} items
 */
async function collected(items) {
  /** @type {Item[]} */
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

// What the page says of its own address is part of an error's words.
Object.assign(globalThis, { location: { origin: 'http://localhost:8642', protocol: 'http:' } });

test('events are told whole, however the bytes are cut', async () => {
  const text = 'data: {"a":"é"}\n\ndata: [1]\n\ndata: [DONE]\n\ndata: {"late":1}\n\n';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 7, 15, bytes.length]) {
    const body = new ReadableStream({
      start(controller) {
        for (let start = 0; start < bytes.length; start += size) controller.enqueue(bytes.slice(start, start + size));
        controller.close();
      },
    });
    assert.deepEqual(await collected(serverEvents(new Response(body))), [{ a: 'é' }, [1]]);
  }
});

test('addresses other than of this machine are refused', () => {
  for (const address of [
    '',
    'nonsense',
    'https://127.0.0.1:8643',
    'http://example.org',
    'http://127.0.0.1.example.org',
  ]) {
    assert.throws(() => new LocalServer(address), /has to be like http:\/\/127\.0\.0\.1:8643/);
  }
  assert.equal(new LocalServer('http://localhost:99/v1').address, 'http://localhost:99');
});

test('where nothing answers, the words have the command to start it', async () => {
  const address = await serving((_request, response) => response.socket?.destroy());
  const port = new URL(address).port;
  await assert.rejects(new LocalServer(address).health(), {
    code: 'no_answer',
    message: `nothing at ${address} answers this page. Start it with: pageloom serve --port ${port} --allow-origin http://localhost:8642`,
  });
});

test('what the server refuses is its own error, and the token is sent', async () => {
  const address = await serving((request, response) => {
    const right = request.headers.authorization === 'Bearer open sesame';
    const error = {
      message: 'this worker needs its token',
      type: 'invalid_request_error',
      param: null,
      code: 'invalid_api_key',
    };
    response.writeHead(right ? 200 : 401).end(JSON.stringify(right ? { status: 'ok' } : { error }));
  });
  await assert.rejects(new LocalServer(address).health(), { code: 'invalid_api_key', message: /needs its token/ });
  assert.deepEqual(await new LocalServer(address, 'open sesame').health(), { status: 'ok' });
  const bare = await serving((_request, response) => response.writeHead(500).end('oops'));
  await assert.rejects(new LocalServer(bare).health(), { message: 'HTTP 500' });
});

test('many and long jobs, and what stops them, go in messages that a server takes, one after another', async () => {
  /** @type {any[][]} */
  const messages = [];
  let underWay = 0;
  const address = await serving(async (request, response) => {
    if (request.url === '/v1/session') {
      response.write(`data: ${JSON.stringify({ session: 'S', prefix: 'S/', model: {} })}\n\n`);
      return;
    }
    underWay += 1;
    assert.equal(underWay, 1);
    const body = (await collected(request)).join('');
    assert.ok(body.length < 4 * 2 ** 20 || messages.length === 2, 'one job that is longer goes alone');
    messages.push(JSON.parse(body).calls);
    underWay -= 1;
    response.writeHead(204).end();
  });
  const client = new ServerClient(new LocalServer(address));
  await client.open();
  const lengths = [600_000, 600_000, 5_000_000, 10, ...Array(300).fill(10)];
  const jobs = client.generate(lengths.map((length) => ({ fields: { prompt: 'x'.repeat(length) } })));
  for (const { id, result } of jobs) {
    result.catch(() => {});
    client.call('abort', { id }).catch(() => {});
  }
  const named = () => messages.flat().map(({ method, id, params }) => (method === 'abort' ? -params.id : id));
  const ids = jobs.map(({ id }) => id);
  while (named().length < 2 * ids.length) await new Promise((resolve) => setImmediate(resolve));
  client.close();
  assert.deepEqual(named(), [...ids, ...ids.map((id) => -id)]);
  const aborts = messages.map((calls) => calls.filter(({ method }) => method === 'abort').length);
  assert.ok(Math.max(...aborts) === 100, `${aborts}`);
});

test('a session carries calls and replies, and its end ends what is pending', async () => {
  /** @type {import('node:http').ServerResponse | undefined} */
  let stream;
  const address = await serving(async (request, response) => {
    if (request.url === '/v1/session') {
      stream = response;
      response.write(`data: ${JSON.stringify({ session: 'S', prefix: 'S/', model: { name: 'm' } })}\n\n`);
      return;
    }
    const { calls } = JSON.parse((await collected(request)).join(''));
    response.writeHead(204).end();
    const replies = calls
      .filter((/** @type {any} */ { method }) => method === 'stats')
      .map((/** @type {any} */ { id }) => ({ id, result: { steps: 1 } }));
    if (replies.length) stream?.write(`data: ${JSON.stringify(replies)}\n\n`);
  });
  const client = new ServerClient(new LocalServer(address));
  assert.equal((await client.open()).name, 'm');
  assert.equal(client.prefix, 'S/');
  assert.deepEqual(await client.call('stats'), { steps: 1 });
  const watching = client.call('watch');
  stream?.end();
  await assert.rejects(watching, { code: 'engine_closed', message: `the local worker at ${address} stopped` });
  await assert.rejects(client.call('stats'), { code: 'engine_closed' });
});
