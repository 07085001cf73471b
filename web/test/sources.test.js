import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { afterEach, test } from 'node:test';
import { BlobSource, UrlSource, withProgress } from '../src/sources.js';

const DATA = Uint8Array.from({ length: 100 }, (_, index) => index);
/** @type {import('node:http').Server | null} */
let server = null;

/**
 * A server for one file; `answer` may change what is sent.
 * @param {(response: import('node:http').ServerResponse, range: [number, number]) => void} answer
 */
async function serve(answer) {
  server = createServer((request, response) => {
    const [, first, last] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? '') ?? [];
    answer(response, [Number(first), Number(last)]);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = /** @type {import('node:net').AddressInfo} */ (server.address());
  return `http://127.0.0.1:${address.port}/model.gguf`;
}

/**
 * @param {import('node:http').ServerResponse} response
 * @param {[number, number]} range
 * @param {{etag?: string, total?: number | string, short?: number}} [change]
 */
function sendRange(response, [first, last], { etag = '"1"', total = 100, short = 0 } = {}) {
  response.writeHead(206, { 'Content-Range': `bytes ${first}-${last}/${total}`, ETag: etag });
  response.end(DATA.subarray(first, last + 1 - short));
}

afterEach(() => {
  server?.closeAllConnections();
  server?.close();
  server = null;
});

test('a URL is read by range', async () => {
  const source = await UrlSource.open(await serve(sendRange));
  assert.equal(source.size, 100);
  assert.deepEqual(new Uint8Array(await source.read(7, 5)), DATA.slice(7, 12));
  assert.equal((await source.read(100, 0)).byteLength, 0);
  await assert.rejects(source.read(96, 5), { name: 'BadModelFile', message: /bytes 96 to 101 .* 100 bytes/ });
});

test('a server that ignores ranges is read whole, where that is small', async () => {
  const source = await UrlSource.open(await serve((response) => response.end(DATA)));
  assert.ok(source instanceof BlobSource);
  assert.deepEqual(new Uint8Array(await source.read(90, 10)), DATA.slice(90));
});

test('a server that ignores ranges is refused, where the file is large', async () => {
  const url = await serve((response) => {
    response.writeHead(200, { 'Content-Length': 2 ** 31 });
    response.write(DATA);
  });
  await assert.rejects(UrlSource.open(url), { name: 'NotSupported', message: /ignores byte ranges/ });
});

test('a server that tells no size is refused', async () => {
  const url = await serve((response, range) => sendRange(response, range, { total: '*' }));
  await assert.rejects(UrlSource.open(url), { name: 'NotSupported', message: /does not tell the size/ });
});

for (const change of [{ etag: '"2"' }, { total: 101 }]) {
  test(`a file that changes while it is read is refused: ${JSON.stringify(change)}`, async () => {
    const url = await serve((response, range) => sendRange(response, range, range[1] === 0 ? {} : change));
    const source = await UrlSource.open(url);
    await assert.rejects(source.read(1, 4), { name: 'BadModelFile', message: /changed while it was read/ });
  });
}

test('an answer that is too short is refused', async () => {
  const source = await UrlSource.open(await serve((response, range) => sendRange(response, range)));
  server?.removeAllListeners('request');
  server?.on('request', (_, response) => sendRange(response, [10, 19], { short: 1 }));
  await assert.rejects(source.read(10, 10), { name: 'BadModelFile', message: /9 bytes where 10/ });
});

test('a URL that cannot be read says why', async () => {
  const url = await serve((response) => response.writeHead(403).end());
  await assert.rejects(UrlSource.open(url), { name: 'BadModelFile', message: /HTTP 403/ });
  await assert.rejects(UrlSource.open('http://127.0.0.1:1/'), { name: 'BadModelFile', message: /cannot read/ });
});

test('progress is told after each read', async () => {
  /** @type {number[][]} */
  const told = [];
  const source = withProgress(new BlobSource(new Blob([DATA])), (...progress) => told.push(progress));
  await source.read(50, 20);
  await source.read(0, 10);
  assert.deepEqual(told, [
    [20, 100],
    [30, 100],
  ]);
});
