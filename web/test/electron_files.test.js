import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { modelFiles } from '../electron/model_files.js';
import { ORIGIN, PageProtocol, rangeOf } from '../electron/page_protocol.js';
import { visibleBounds } from '../electron/window_bounds.js';

function folders() {
  const root = mkdtempSync(join(tmpdir(), 'pageloom-'));
  for (const [name, text] of [
    ['page/index.html', '<title>Page'],
    ['page/assets/a.js', 'export {};'],
    ['models/m.gguf', 'GGUF0123456789'],
    ['secret.txt', 'secret'],
    ['page-other/x.txt', 'other'],
  ]) {
    mkdirSync(join(root, String(name), '..'), { recursive: true });
    writeFileSync(join(root, String(name)), String(text));
  }
  return { root, protocol: new PageProtocol(join(root, 'page'), join(root, 'models')) };
}

/**
 * @param {PageProtocol} protocol
 * @param {string} url
 * @param {{method?: string, headers?: Record<string, string>}} [init]
 */
function fetched(protocol, url, { method = 'GET', headers = {} } = {}) {
  return protocol.answer({ url, method, headers: new Headers(headers) });
}

test('the page, its assets and the built-in model are served, with the policy', async () => {
  const { protocol } = folders();
  for (const [path, type, text] of [
    ['', 'text/html; charset=utf-8', '<title>Page'],
    ['assets/a.js?x=1', 'text/javascript; charset=utf-8', 'export {};'],
    ['model/m.gguf', 'application/octet-stream', 'GGUF0123456789'],
  ]) {
    const response = await fetched(protocol, `${ORIGIN}/${path}`);
    assert.deepEqual([response.status, response.headers.get('Content-Type')], [200, type]);
    assert.match(response.headers.get('Content-Security-Policy') ?? '', /default-src 'none'.*wasm-unsafe-eval/);
    assert.equal(await response.text(), text);
  }
});

test('no address leaves the folders', async () => {
  const { protocol } = folders();
  for (const path of [
    '../secret.txt',
    '%2e%2e/secret.txt',
    '..%2fsecret.txt',
    '%2e%2e%2fsecret.txt',
    'assets/..%2f..%2fsecret.txt',
    '..%5csecret.txt',
    'model/..%2f..%2fsecret.txt',
    'opened/..%2f..%2fsecret.txt',
    'opened/1/x',
    '%00',
    '%',
    '..%2fpage-other/x.txt',
    'model',
    'assets',
  ]) {
    assert.equal((await fetched(protocol, `${ORIGIN}/${path}`)).status, 404, path);
  }
  for (const url of ['app://other/index.html', 'file:///etc/passwd', 'https://pageloom/', 'nonsense']) {
    assert.equal((await fetched(protocol, url)).status, 404, url);
  }
  assert.equal((await fetched(protocol, `${ORIGIN}/`, { method: 'POST' })).status, 405);
});

test('a file that was opened is served whole or in ranges, with what tells its version', async () => {
  const { root, protocol } = folders();
  const url = protocol.open(join(root, 'models/m.gguf'));
  assert.equal(protocol.open(join(root, 'models/m.gguf')), url);
  const head = await fetched(protocol, url, { method: 'HEAD' });
  assert.deepEqual([head.headers.get('Content-Length'), await head.text()], ['14', '']);
  assert.ok(head.headers.get('ETag'));
  const part = await fetched(protocol, url, { headers: { Range: 'bytes=4-6' } });
  assert.deepEqual([part.status, part.headers.get('Content-Range'), await part.text()], [206, 'bytes 4-6/14', '012']);
  const outside = await fetched(protocol, url, { headers: { Range: 'bytes=14-' } });
  assert.deepEqual([outside.status, outside.headers.get('Content-Range')], [416, 'bytes */14']);
});

test('a page that stops reading a large file leaves the app well', async () => {
  const { root, protocol } = folders();
  const path = join(root, 'models/large.gguf');
  writeFileSync(path, new Uint8Array(4 * 1024 * 1024).fill(7));
  const url = protocol.open(path);
  for (let time = 0; time < 20; time += 1) {
    const { body } = await fetched(protocol, url, { headers: { Range: 'bytes=1-' } });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (body).getReader();
    assert.equal((await reader.read()).value?.[0], 7);
    reader.read().catch(() => {});
    await reader.cancel();
  }
  const after = await fetched(protocol, url);
  assert.equal((await after.arrayBuffer()).byteLength, 4 * 1024 * 1024);
});

test('a file that was opened is no document of the page, whatever it is called', async () => {
  const { root, protocol } = folders();
  for (const name of ['page.html', 'code.js', 'image.svg', 'm.gguf']) {
    const path = join(root, name);
    writeFileSync(path, '<script>alert(1)</script>');
    const { headers } = await fetched(protocol, protocol.open(path));
    assert.equal(headers.get('Content-Type'), 'application/octet-stream', name);
    assert.equal(headers.get('X-Content-Type-Options'), 'nosniff');
  }
});

test('a range is what RFC 9110 says', () => {
  assert.deepEqual(rangeOf('bytes=0-0', 10), { start: 0, end: 0 });
  assert.deepEqual(rangeOf('bytes=5-', 10), { start: 5, end: 9 });
  assert.deepEqual(rangeOf('bytes=-3', 10), { start: 7, end: 9 });
  assert.deepEqual(rangeOf('bytes=5-99', 10), { start: 5, end: 9 });
  assert.equal(rangeOf('bytes=10-', 10), 'outside');
  for (const header of [null, '', 'bytes=-', 'bytes=0-1,3-4', 'items=0-1']) assert.equal(rangeOf(header, 10), null);
});

test('model files are told from options and other files', () => {
  const argv = ['/app', '--inspect', '--model=x.gguf', 'a.gguf', '/b/C.GGUF', 'notes.txt'];
  assert.deepEqual(modelFiles(argv, '/home'), ['/home/a.gguf', '/b/C.GGUF']);
});

test('saved bounds are taken where their title bar can be held, and else only their size', () => {
  const screens = [
    { x: 0, y: 0, width: 1920, height: 1040 },
    { x: 1920, y: 0, width: 1280, height: 1000 },
  ];
  const seen = { x: 2000, y: 100, width: 800, height: 600 };
  assert.deepEqual(visibleBounds(seen, screens), seen);
  assert.deepEqual(visibleBounds(seen, screens.slice(0, 1)), { width: 800, height: 600 });
  assert.deepEqual(visibleBounds({ ...seen, y: -200 }, screens), { width: 800, height: 600 });
  assert.deepEqual(visibleBounds({ x: 0, y: 0, width: 1, height: 1 }, screens), {
    x: 0,
    y: 0,
    width: 360,
    height: 480,
  });
  for (const damaged of [null, 5, {}, { x: 'a', y: 0, width: 1, height: 1 }]) {
    assert.deepEqual(visibleBounds(damaged, screens), { width: 1280, height: 860 });
  }
});
