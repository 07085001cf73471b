import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { downloadOf, isRest } from '../src/download.js';

const BYTES = Uint8Array.from({ length: 1000 }, (_, index) => index % 251);
const FILE = { size: BYTES.length, validator: '"v1"' };

/**
 * @param {Record<string, string>} headers
 * @param {number} [status]
 */
const response = (headers, status = 206) => new Response(null, { status, headers });

test('the rest of a file is taken only where it is of the same file, from the byte asked for to the end', () => {
  const range = 'bytes 400-999/1000';
  assert.ok(isRest(response({ 'Content-Range': range, ETag: '"v1"' }), FILE, 400));
  assert.ok(!isRest(response({ 'Content-Range': range, ETag: '"v2"' }), FILE, 400));
  assert.ok(!isRest(response({ 'Content-Range': 'bytes 400-899/900', ETag: '"v1"' }), FILE, 400));
  assert.ok(!isRest(response({ 'Content-Range': 'bytes 0-999/1000', ETag: '"v1"' }), FILE, 400));
  assert.ok(!isRest(response({ 'Content-Length': '1000', ETag: '"v1"' }, 200), FILE, 400));
});

test('where a foreign server shows neither range nor version, the length decides', () => {
  assert.ok(isRest(response({ 'Content-Length': '600' }), FILE, 400));
  assert.ok(!isRest(response({ 'Content-Length': '1000' }), FILE, 400));
});

/**
 * A server of `BYTES` that serves ranges or not, and what was asked of it.
 * @param {boolean} ranges
 */
async function serve(ranges) {
  /** @type {(string | undefined)[]} */
  const asked = [];
  const server = createServer(({ headers }, answer) => {
    asked.push(headers.range);
    const start = ranges && headers.range ? Number(/bytes=(\d+)-/.exec(headers.range)?.[1]) : 0;
    if (start) answer.writeHead(206, { 'Content-Range': `bytes ${start}-999/1000`, ETag: '"v1"' });
    answer.end(BYTES.subarray(start));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(null)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}/model.gguf`, asked, close: () => server.close() };
}

for (const [ranges, start, requests] of /** @type {[boolean, number, number][]} */ ([
  [true, 400, 1],
  [false, 0, 2],
])) {
  test(`a download goes on at byte ${start} where the server ${ranges ? 'sends' : 'sends no'} parts of files`, async () => {
    const server = await serve(ranges);
    const opened = await downloadOf(server.url, FILE)(400);
    assert.equal(opened.start, start);
    const bytes = new Uint8Array(await new Response(opened.stream).arrayBuffer());
    assert.deepEqual(bytes, BYTES.subarray(start));
    assert.equal(server.asked.length, requests);
    server.close();
  });
}
