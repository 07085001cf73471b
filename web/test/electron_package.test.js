import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

const ROOT = resolve(import.meta.dirname, '../..');
/** @param {string} path */
const read = (path) => readFileSync(join(ROOT, path), 'utf8');
const builder = JSON.parse(read('web/electron/builder.json'));

test('what the document of the app tells to run is there', () => {
  const { scripts, main, devDependencies } = JSON.parse(read('package.json'));
  const named = [...read('docs/desktop.md').matchAll(/npm run ([\w:]+)/g)].map(([, script]) => script);
  assert.deepEqual(named, ['build', 'desktop', 'desktop:package']);
  for (const script of named) assert.ok(scripts[String(script)], script);
  assert.ok(existsSync(join(ROOT, main)));
  assert.match(devDependencies.electron, /^\d+\.\d+\.\d+$/);
});

test('a package holds the page and the app, opens .gguf files, and runs nothing else', () => {
  for (const path of ['package.json', 'web/policy.js', 'web/electron/main.js', 'web/electron/preload.cjs']) {
    const isHeld = (/** @type {string} */ pattern) => pattern === path || path.startsWith(pattern.replace('**', ''));
    assert.ok(builder.files.some(isHeld), path);
    assert.ok(existsSync(join(ROOT, path)), path);
  }
  assert.ok(builder.files.includes('dist/**') && builder.files.includes('!node_modules/**'));
  assert.deepEqual(
    builder.fileAssociations.map((/** @type {any} */ { ext }) => ext),
    ['gguf'],
  );
  for (const system of ['linux', 'win', 'mac']) assert.ok(builder[system].target.length > 0, system);
  const { runAsNode, enableNodeOptionsEnvironmentVariable, enableNodeCliInspectArguments } = builder.electronFuses;
  assert.deepEqual(
    [runAsNode, enableNodeOptionsEnvironmentVariable, enableNodeCliInspectArguments],
    [false, false, false],
  );
  assert.ok(existsSync(join(ROOT, builder.mac.entitlements)));
});
