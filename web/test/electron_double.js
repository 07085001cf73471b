/** A double of the `electron` module: what the app told it, and a way to make things happen. */

import { EventEmitter } from 'node:events';

/** What every object of Electron's takes down. */
class Recorder extends EventEmitter {
  /** @type {[method: string, ...args: any[]][]} */
  calls = [];

  /** @param {string} method */
  callsOf(method) {
    return this.calls.filter(([name]) => name === method).map(([, ...args]) => args);
  }

  /**
   * A method that only takes its call down.
   * @param {string} name
   */
  takes(name) {
    return (/** @type {any[]} */ ...args) => void this.calls.push([name, ...args]);
  }
}

export class WebContents extends Recorder {
  send = this.takes('send');
  setWindowOpenHandler = this.takes('setWindowOpenHandler');
}

export class BrowserWindow extends Recorder {
  /** @type {BrowserWindow[]} */
  static all = [];
  webContents = new WebContents();
  bounds = { x: 10, y: 20, width: 700, height: 600 };

  /** @param {any} options */
  constructor(options) {
    super();
    this.options = options;
    BrowserWindow.all.push(this);
  }

  /** @param {WebContents} contents */
  static fromWebContents(contents) {
    return BrowserWindow.all.find((window) => window.webContents === contents) ?? null;
  }

  loadURL = this.takes('loadURL');
  show = this.takes('show');
  focus = this.takes('focus');
  restore = this.takes('restore');
  isMinimized = () => false;
  getNormalBounds = () => this.bounds;
}

/**
 * @param {{isFirst?: boolean, userData?: string}} [options]
 * @returns {any}
 */
export function electronDouble({ isFirst = true, userData = '/nowhere' } = {}) {
  BrowserWindow.all = [];
  let resolveReady = () => {};
  /** @type {Promise<void>} */
  const ready = new Promise((resolve) => {
    resolveReady = resolve;
  });
  /** @type {any[][]} */
  const switches = [];
  const app = Object.assign(new Recorder(), {
    isReadyNow: false,
    requestSingleInstanceLock: () => isFirst,
    isReady: () => app.isReadyNow,
    whenReady: () => ready,
    getPath: () => userData,
    commandLine: Object.assign(new Recorder(), { appendSwitch: (/** @type {any[]} */ ...args) => switches.push(args) }),
    quit: (/** @type {any[]} */ ...args) => void app.calls.push(['quit', ...args]),
    enableSandbox: () => void app.calls.push(['enableSandbox']),
  });
  const protocol = new Recorder();
  const defaultSession = new Recorder();
  /** @type {Map<string, (...args: any[]) => any>} */
  const handlers = new Map();
  return {
    app,
    BrowserWindow,
    switches,
    handlers,
    protocol: Object.assign(protocol, {
      registerSchemesAsPrivileged: protocol.takes('registerSchemesAsPrivileged'),
      handle: protocol.takes('handle'),
    }),
    session: {
      defaultSession: Object.assign(defaultSession, {
        setPermissionRequestHandler: defaultSession.takes('setPermissionRequestHandler'),
        setPermissionCheckHandler: defaultSession.takes('setPermissionCheckHandler'),
        setDevicePermissionHandler: defaultSession.takes('setDevicePermissionHandler'),
      }),
    },
    ipcMain: Object.assign(new Recorder(), {
      handle: (/** @type {string} */ channel, /** @type {any} */ handler) => handlers.set(channel, handler),
    }),
    dialog: {
      answer: { canceled: true, filePaths: [], filePath: undefined },
      async showOpenDialog() {
        return this.answer;
      },
      async showSaveDialog() {
        return this.answer;
      },
      errors: /** @type {string[][]} */ ([]),
      showErrorBox(/** @type {string[]} */ ...words) {
        this.errors.push(words);
      },
    },
    screen: { getAllDisplays: () => [{ workArea: { x: 0, y: 0, width: 1920, height: 1040 } }] },
    Menu: { setApplicationMenu: () => {} },
    shell: Object.assign(new Recorder(), {
      opened: /** @type {string[]} */ ([]),
      openExternal(/** @type {string} */ address) {
        this.opened.push(address);
      },
    }),
    /** Lets the app be ready, and what waits for that run. */
    async becomeReady() {
      app.isReadyNow = true;
      resolveReady();
      await ready;
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}
