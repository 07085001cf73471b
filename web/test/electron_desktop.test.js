import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Desktop } from '../electron/desktop.js';
import { ORIGIN } from '../electron/page_protocol.js';
import { fileNameOf } from '../src/chat/export.js';
import { ROOT } from '../src/chat/tree.js';
import { BrowserWindow, electronDouble, WebContents } from './electron_double.js';

const MODEL = join(import.meta.dirname, 'a model.gguf');

/**
 * @param {any} electron
 * @param {{argv?: string[], platform?: string}} [around]
 */
function started(electron, { argv = ['pageloom'], platform = 'linux' } = {}) {
  const folder = import.meta.dirname;
  new Desktop(electron, {
    page: folder,
    preload: '/preload.cjs',
    models: folder,
    icon: '/icon.svg',
    argv,
    platform,
    env: {},
    spawn,
  }).start();
  return electron;
}

/** @param {any} electron */
async function ready(electron) {
  await electron.becomeReady();
  const [window] = BrowserWindow.all;
  assert.ok(window);
  return window;
}

/**
 * What the page gets from a call, as if it were asked from `url`.
 * @param {any} electron
 * @param {BrowserWindow} window
 * @param {string} channel
 * @param {any[]} args
 * @param {any} [frame]
 */
function ask(electron, window, channel, args = [], frame = { url: `${ORIGIN}/`, parent: null }) {
  return electron.handlers.get(channel)({ sender: window.webContents, senderFrame: frame }, ...args);
}

test('the window shows the page from its own protocol, isolated, in a sandbox, without Node', async () => {
  const electron = started(electronDouble());
  const window = await ready(electron);
  assert.deepEqual(window.callsOf('loadURL'), [[`${ORIGIN}/`]]);
  const { contextIsolation, sandbox, nodeIntegration, webSecurity, webviewTag } = window.options.webPreferences;
  assert.deepEqual([contextIsolation, sandbox, webSecurity], [true, true, true]);
  assert.deepEqual([nodeIntegration, webviewTag], [false, false]);
  assert.deepEqual(electron.app.callsOf('enableSandbox'), [[]]);
  const [[[{ scheme, privileges }]]] = electron.protocol.callsOf('registerSchemesAsPrivileged');
  assert.deepEqual([scheme, privileges.standard, privileges.secure], ['app', true, true]);
  assert.equal(electron.protocol.callsOf('handle')[0][0], 'app');
});

test('WebGPU is switched on where the system needs it, and only there', () => {
  const linux = started(electronDouble());
  const given = linux.switches.map((/** @type {string[]} */ words) => words.join('='));
  assert.ok(given.includes('enable-unsafe-webgpu') && given.includes('enable-features=Vulkan'));
  const mac = started(electronDouble(), { platform: 'darwin' });
  assert.ok(!mac.switches.flat().includes('enable-unsafe-webgpu'));
});

test('a page can go nowhere else and opens no window; a link to the web opens in the browser', () => {
  const electron = started(electronDouble());
  const contents = new WebContents();
  electron.app.emit('web-contents-created', {}, contents);
  for (const [event, url, refused] of [
    ['will-navigate', 'https://example.org/', true],
    ['will-navigate', `${ORIGIN}.example.org/`, true],
    ['will-navigate', 'file:///etc/passwd', true],
    ['will-navigate', `${ORIGIN}/index.html`, false],
    ['will-frame-navigate', 'https://example.org/', true],
    ['will-redirect', `${ORIGIN}/`, true],
    ['will-attach-webview', '', true],
  ]) {
    let prevented = false;
    contents.emit(String(event), { url, preventDefault: () => (prevented = true) });
    assert.equal(prevented, refused, `${event} ${url}`);
  }
  const [[onOpen]] = /** @type {[[(details: {url: string}) => {action: string}]]} */ (
    /** @type {unknown} */ (contents.callsOf('setWindowOpenHandler'))
  );
  for (const url of ['https://example.org/', 'file:///etc/passwd', 'javascript:alert(1)', 'no address']) {
    assert.equal(onOpen({ url }).action, 'deny');
  }
  assert.deepEqual(electron.shell.opened, ['https://example.org/']);
});

test('of permissions the page gets those to copy and to ask a local worker, and other pages none', async () => {
  const electron = started(electronDouble());
  await ready(electron);
  const { defaultSession } = electron.session;
  const [[request]] = defaultSession.callsOf('setPermissionRequestHandler');
  const [[check]] = defaultSession.callsOf('setPermissionCheckHandler');
  const [[device]] = defaultSession.callsOf('setDevicePermissionHandler');
  for (const [permission, url, wanted] of [
    ['clipboard-sanitized-write', `${ORIGIN}/`, true],
    ['clipboard-sanitized-write', 'https://example.org/', false],
    ['loopback-network', `${ORIGIN}/`, true],
    ['local-network-access', `${ORIGIN}/`, true],
    ['loopback-network', 'https://example.org/', false],
    ['local-network', `${ORIGIN}/`, false],
    ['clipboard-read', `${ORIGIN}/`, false],
    ['media', `${ORIGIN}/`, false],
    ['geolocation', `${ORIGIN}/`, false],
  ]) {
    request(null, permission, (/** @type {boolean} */ given) => assert.equal(given, wanted), { requestingUrl: url });
    assert.equal(check(null, permission, String(url).replace(/\/$/, '')), wanted);
  }
  assert.equal(device({}), false);
});

test('model files of the command line, of a double click and of a second start reach the page once it is ready', async () => {
  const electron = started(electronDouble(), { argv: ['pageloom', '--flag', MODEL, 'notes.txt'] });
  let prevented = false;
  electron.app.emit('open-file', { preventDefault: () => (prevented = true) }, '/models/Other.GGUF');
  const window = await ready(electron);
  assert.ok(prevented);
  assert.deepEqual(window.webContents.callsOf('send'), []);
  electron.ipcMain.emit('pageloom:ready', {});
  electron.app.emit('second-instance', {}, ['pageloom', 'third.gguf'], '/elsewhere');
  const sent = window.webContents.callsOf('send').map(([, file]) => file.name);
  assert.deepEqual(sent, ['a model.gguf', 'Other.GGUF', 'third.gguf']);
  assert.equal(window.callsOf('focus').length, 1);
  const [[channel, { url }]] = /** @type {[[string, {url: string}]]} */ (
    /** @type {unknown} */ (window.webContents.callsOf('send'))
  );
  assert.deepEqual([channel, url], ['pageloom:opened', `${ORIGIN}/opened/1/a%20model.gguf`]);
});

test('a second instance quits and leaves the window to the first', async () => {
  const electron = started(electronDouble({ isFirst: false }));
  await electron.becomeReady();
  assert.deepEqual(electron.app.callsOf('quit'), [[]]);
  assert.equal(BrowserWindow.all.length, 0);
});

test('a window comes back where it was', async () => {
  const userData = mkdtempSync(join(tmpdir(), 'pageloom-'));
  const first = await ready(started(electronDouble({ userData })));
  assert.equal(first.options.x, undefined);
  first.emit('close');
  assert.deepEqual(JSON.parse(readFileSync(join(userData, 'window.json'), 'utf8')), first.bounds);
  const again = await ready(started(electronDouble({ userData })));
  const { x, y, width, height } = again.options;
  assert.deepEqual({ x, y, width, height }, first.bounds);
});

test('only the page itself may ask the main process', async () => {
  const electron = started(electronDouble());
  const window = await ready(electron);
  for (const frame of [null, { url: 'https://example.org/', parent: null }, { url: `${ORIGIN}/`, parent: {} }]) {
    assert.throws(() => ask(electron, window, 'pageloom:open-model', [], frame), /only the page/);
  }
  assert.throws(() => ask(electron, /** @type {any} */ ({ webContents: {} }), 'pageloom:stop-worker'), /only the page/);
  assert.deepEqual([...electron.handlers.keys()].sort(), [
    'pageloom:open-model',
    'pageloom:save',
    'pageloom:start-worker',
    'pageloom:stop-worker',
  ]);
});

test('a model is opened by the dialog, and a result saved by it, where the arguments are in order', async () => {
  const electron = started(electronDouble());
  const window = await ready(electron);
  assert.equal(await ask(electron, window, 'pageloom:open-model'), null);
  const folder = mkdtempSync(join(tmpdir(), 'pageloom-'));
  electron.dialog.answer = { canceled: false, filePaths: [MODEL], filePath: join(folder, 'out.csv') };
  assert.deepEqual(await ask(electron, window, 'pageloom:open-model'), {
    url: `${ORIGIN}/opened/1/a%20model.gguf`,
    name: 'a model.gguf',
  });
  assert.equal(await ask(electron, window, 'pageloom:save', ['out.csv', 'a,b']), true);
  assert.equal(readFileSync(join(folder, 'out.csv'), 'utf8'), 'a,b');
  for (const args of [
    ['../out', 'x'],
    ['', 'x'],
    ['a.csv', 5],
    [7, 'x'],
  ]) {
    await assert.rejects(async () => ask(electron, window, 'pageloom:save', args), /that is no/);
  }
});

test('a chat is saved under its name in any script', async () => {
  const electron = started(electronDouble());
  const window = await ready(electron);
  const path = join(mkdtempSync(join(tmpdir(), 'pageloom-')), 'chat.md');
  electron.dialog.answer = { canceled: false, filePath: path };
  const asked = { nodes: [{ role: 'user', content: '東京 und Köln? Ответь' }], number: 1, chosen: { [ROOT]: 0 } };
  const name = fileNameOf(/** @type {any} */ (asked), 'md');
  assert.equal(name, '東京-und-köln-ответь.md');
  assert.equal(await ask(electron, window, 'pageloom:save', [name, 'Es']), true);
  assert.equal(readFileSync(path, 'utf8'), 'Es');
});

test('a file that cannot be written is told', async () => {
  const electron = started(electronDouble());
  const window = await ready(electron);
  const filePath = join(mkdtempSync(join(tmpdir(), 'pageloom-')), 'no folder', 'out.csv');
  electron.dialog.answer = { canceled: false, filePath };
  assert.equal(await ask(electron, window, 'pageloom:save', ['out.csv', 'a,b']), false);
  const [[title, detail]] = electron.dialog.errors;
  assert.equal(title, 'The file was not saved');
  assert.match(detail, /ENOENT.*out\.csv/);
});
