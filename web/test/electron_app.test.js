/** The app itself, where Electron's binary is there: `npx install-electron` fetches it. */

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { _electron } from 'playwright-core';

const ROOT = resolve(import.meta.dirname, '../..');

/** Why the app cannot be started here, or false. */
function whyNot() {
  const program = { darwin: 'Electron.app/Contents/MacOS/Electron', win32: 'electron.exe' }[String(process.platform)];
  const binary = join(ROOT, 'node_modules/electron/dist', program ?? 'electron');
  if (!existsSync(binary)) return 'Electron’s binary is not installed: npx install-electron fetches it';
  if (!existsSync(join(ROOT, 'dist/index.html'))) return 'the page is not built: npm run build';
  if (process.platform === 'linux' && !process.env.DISPLAY) return 'there is no display: run it under xvfb-run';
  return false;
}

test('the app shows the page, which sees nothing of Node and has a GPU', {
  skip: whyNot(),
  timeout: 120_000,
}, async () => {
  const app = await _electron.launch({
    executablePath: createRequire(import.meta.url)('electron'),
    args: ['--no-sandbox', ROOT, `--user-data-dir=${mkdtempSync(join(tmpdir(), 'pageloom-'))}`],
  });
  try {
    const page = await app.firstWindow();
    await page.getByRole('tab', { name: 'Models' }).waitFor();
    const seen = await page.evaluate(() => ({
      url: location.href,
      node: ['require', 'process', 'module'].filter((name) => name in globalThis),
      offered: Object.keys(/** @type {any} */ (globalThis).pageloomDesktop),
      secure: isSecureContext,
      gpu: 'gpu' in navigator,
    }));
    assert.deepEqual(seen, {
      url: 'app://pageloom/',
      node: [],
      offered: ['openModel', 'save', 'startWorker', 'stopWorker', 'onOpened'],
      secure: true,
      gpu: true,
    });
  } finally {
    await app.close();
  }
});
