import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { LocalWorker } from '../electron/local_worker.js';
import { ORIGIN } from '../electron/page_protocol.js';

/**
 * A program in the place of `pageloom`; it writes down how it was called.
 * @param {string} body
 */
function program(body) {
  const folder = mkdtempSync(join(tmpdir(), 'pageloom-'));
  const command = join(folder, 'pageloom');
  const told = join(folder, 'told.json');
  writeFileSync(
    command,
    `#!${process.execPath}
    const { appendFileSync, writeFileSync } = require('node:fs');
    appendFileSync(${JSON.stringify(`${told}.pids`)}, process.pid + ' ');
    writeFileSync(${JSON.stringify(told)}, JSON.stringify({ argv: process.argv.slice(2), token: process.env.PAGELOOM_TOKEN, pid: process.pid }));
    ${body}`,
  );
  chmodSync(command, 0o755);
  return {
    worker: new LocalWorker(spawn, { PAGELOOM_COMMAND: command }),
    told: () => JSON.parse(readFileSync(told, 'utf8')),
    pids: () => readFileSync(`${told}.pids`, 'utf8').trim().split(' ').map(Number),
  };
}

const SERVING = `
  const server = require('node:http').createServer((request, answer) => answer.writeHead(request.url === '/healthz' ? 200 : 404).end());
  server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ url: 'http://127.0.0.1:' + server.address().port })));`;

/** @param {number} pid */
function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test('it starts on a free port, for the app alone, with a token that no command line shows', async () => {
  const { worker, told } = program(SERVING);
  const { address, token } = await worker.start('cpu');
  const { argv, token: given, pid } = told();
  assert.match(address, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.equal(given, token);
  assert.match(token, /^[0-9a-f]{64}$/);
  assert.deepEqual(argv, ['serve', '--port', '0', '--json', '--backend', 'cpu', '--allow-origin', ORIGIN]);
  assert.ok(isAlive(pid));
  await worker.stop();
  assert.ok(!isAlive(pid));
  await worker.stop();
});

test('a start ends the one before', async () => {
  const { worker, told } = program(SERVING);
  await worker.start('cpu');
  const { pid } = told();
  await worker.start('webgpu');
  assert.ok(!isAlive(pid));
  const second = told().pid;
  worker.kill();
  while (isAlive(second)) await new Promise((resolve) => setImmediate(resolve));
});

test('of starts at once one is left, and none after a stop', async () => {
  const { worker, told, pids } = program(SERVING);
  const starts = await Promise.allSettled([worker.start('cpu'), worker.start('webgpu'), worker.start('cpu')]);
  assert.equal(starts[2].status, 'fulfilled');
  assert.deepEqual(pids().filter(isAlive), [told().pid]);
  await Promise.allSettled([worker.start('cpu'), worker.stop()]);
  assert.deepEqual(pids().filter(isAlive), []);
  worker.kill();
  await assert.rejects(worker.start('cpu'), /the app is ending/);
});

test('what keeps it from starting is told', async () => {
  const failing = program("console.error('pageloom: error: there is no CUDA here'); process.exit(3);");
  await assert.rejects(failing.worker.start('cuda'), /ended with 3: pageloom: error: there is no CUDA here/);
  const other = program("console.log('Usage: other program'); setTimeout(() => {}, 1e6);");
  await assert.rejects(other.worker.start('cpu'), /is no Pageloom: it says Usage: other program/);
  await other.worker.stop();
  const missing = new LocalWorker(spawn, { PAGELOOM_COMMAND: '/nowhere/pageloom' });
  await assert.rejects(missing.start('cpu'), /does not start. Install it with pip install/);
  await assert.rejects(missing.start('quantum'), /there is no backend quantum/);
});

test('one that answers but is not well is ended', async () => {
  const { worker, told } = program(SERVING.replace('? 200', '? 503'));
  await assert.rejects(worker.start('cpu'), /not well: HTTP 503/);
  assert.ok(!isAlive(told().pid));
});
