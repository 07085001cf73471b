/**
 * The app as a whole: one instance, one window, the page in it.
 * @import {BrowserWindow} from 'electron'
 */

import { basename, join } from 'node:path';
import { setGpuFlags } from './gpu_flags.js';
import { denyPermissions, keepInside, webPreferences } from './hardening.js';
import { LocalWorker } from './local_worker.js';
import { modelFiles } from './model_files.js';
import { PageCalls } from './page_calls.js';
import { ORIGIN, PageProtocol, PRIVILEGES, SCHEME } from './page_protocol.js';
import { readBounds, visibleBounds, writeBounds } from './window_bounds.js';

/**
 * @typedef {object} Surroundings
 * @property {string} page  The folder of the built page.
 * @property {string} preload
 * @property {string} models
 * @property {string} icon
 * @property {string[]} argv
 * @property {string} platform
 * @property {NodeJS.ProcessEnv} env
 * @property {typeof import('node:child_process').spawn} spawn
 */

export class Desktop {
  #electron;
  #around;
  #protocol;
  #worker;
  /** @type {BrowserWindow | null} */
  #window = null;
  /** @type {string[]} Model files for a page that is not ready yet. */
  #waiting = [];
  #isPageReady = false;

  /**
   * @param {typeof import('electron')} electron
   * @param {Surroundings} around
   */
  constructor(electron, around) {
    this.#electron = electron;
    this.#around = around;
    this.#protocol = new PageProtocol(around.page, around.models);
    this.#worker = new LocalWorker(around.spawn, around.env);
  }

  /** Everything that has to be said before the app is ready, and what comes once it is. */
  start() {
    const { app, protocol } = this.#electron;
    const { argv, platform } = this.#around;
    if (!app.requestSingleInstanceLock()) {
      app.quit(); // the first instance gets the command line
      return;
    }
    protocol.registerSchemesAsPrivileged([PRIVILEGES]);
    setGpuFlags(app.commandLine, platform);
    app.enableSandbox();
    this.#openFiles(modelFiles(argv, process.cwd()));
    app.on('open-file', (event, path) => {
      event.preventDefault();
      this.#openFiles([path]);
    });
    app.on('second-instance', (_event, otherArgv, folder) => {
      this.#openFiles(modelFiles(otherArgv, folder));
      this.#showWindow();
    });
    app.on('web-contents-created', (_event, contents) =>
      keepInside(contents, (address) => this.#electron.shell.openExternal(address)),
    );
    app.on('activate', () => this.#showWindow());
    app.on('window-all-closed', () => app.quit());
    app.on('will-quit', () => this.#worker.kill());
    app.whenReady().then(() => this.#ready());
  }

  #ready() {
    const { BrowserWindow, dialog, ipcMain, Menu, protocol, session } = this.#electron;
    protocol.handle(SCHEME, (request) => this.#protocol.answer(request));
    denyPermissions(session.defaultSession);
    new PageCalls(dialog, this.#protocol, this.#worker).listen(ipcMain, (event) =>
      BrowserWindow.fromWebContents(event.sender),
    );
    ipcMain.on('pageloom:ready', () => {
      this.#isPageReady = true;
      this.#openFiles(this.#waiting.splice(0));
    });
    // The page has its own controls; macOS needs a menu for the usual keys.
    if (this.#around.platform !== 'darwin') Menu.setApplicationMenu(null);
    this.#showWindow();
  }

  #showWindow() {
    const { app, BrowserWindow, screen } = this.#electron;
    if (!app.isReady()) return;
    if (this.#window) {
      if (this.#window.isMinimized()) this.#window.restore();
      this.#window.focus();
      return;
    }
    const kept = join(app.getPath('userData'), 'window.json');
    const screens = screen.getAllDisplays().map(({ workArea }) => workArea);
    const window = new BrowserWindow({
      ...visibleBounds(readBounds(kept), screens),
      title: 'Pageloom',
      icon: this.#around.icon,
      show: false,
      webPreferences: webPreferences(this.#around.preload),
    });
    this.#window = window;
    window.once('ready-to-show', () => window.show());
    window.on('close', () => writeBounds(kept, window.getNormalBounds()));
    window.on('closed', () => {
      this.#window = null;
      this.#isPageReady = false;
    });
    window.loadURL(`${ORIGIN}/`);
  }

  /** @param {string[]} paths */
  #openFiles(paths) {
    if (!this.#isPageReady || !this.#window) {
      this.#waiting.push(...paths);
      return;
    }
    for (const path of paths) {
      this.#window.webContents.send('pageloom:opened', { url: this.#protocol.open(path), name: basename(path) });
    }
  }
}
