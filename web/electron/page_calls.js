/**
 * What the page may ask of the main process, and nothing besides: each call comes from the page itself, with arguments
 * that are checked here.
 * @import {BrowserWindow, Dialog, IpcMain, IpcMainInvokeEvent} from 'electron'
 * @import {LocalWorker} from './local_worker.js'
 * @import {PageProtocol} from './page_protocol.js'
 */

import { writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { isOwn } from './hardening.js';

const LONGEST_TEXT = 256 * 1024 * 1024;
/** A name for the dialog to propose; chats are named in any script. */
const FILE_NAME = /^[\p{L}\p{N}_ .()-]{1,100}$/u;

export class PageCalls {
  #dialog;
  #protocol;
  #worker;

  /**
   * @param {Pick<Dialog, 'showOpenDialog' | 'showSaveDialog' | 'showErrorBox'>} dialog
   * @param {PageProtocol} protocol
   * @param {LocalWorker} worker
   */
  constructor(dialog, protocol, worker) {
    this.#dialog = dialog;
    this.#protocol = protocol;
    this.#worker = worker;
  }

  /**
   * @param {Pick<IpcMain, 'handle'>} ipc
   * @param {(event: IpcMainInvokeEvent) => BrowserWindow | null} windowOf
   */
  listen(ipc, windowOf) {
    /** @type {[string, (window: BrowserWindow, ...args: any[]) => Promise<unknown>][]} */
    const calls = [
      ['pageloom:open-model', (window) => this.#openModel(window)],
      ['pageloom:save', (window, name, text) => this.#save(window, name, text)],
      ['pageloom:start-worker', (_window, backend) => this.#startWorker(backend)],
      ['pageloom:stop-worker', () => this.#worker.stop()],
    ];
    for (const [channel, call] of calls) {
      ipc.handle(channel, (event, ...args) => {
        const window = windowOf(event);
        const frame = event.senderFrame;
        if (!window || !frame || frame.parent !== null || !isOwn(frame.url)) throw new Error('only the page may ask');
        return call(window, ...args);
      });
    }
  }

  /** @param {BrowserWindow} window */
  async #openModel(window) {
    const { canceled, filePaths } = await this.#dialog.showOpenDialog(window, {
      title: 'Open a model',
      properties: ['openFile'],
      filters: [{ name: 'GGUF models', extensions: ['gguf'] }],
    });
    const [path] = filePaths;
    return canceled || !path ? null : { url: this.#protocol.open(path), name: basename(path) };
  }

  /**
   * @param {BrowserWindow} window
   * @param {unknown} name
   * @param {unknown} text
   */
  async #save(window, name, text) {
    if (typeof name !== 'string' || !FILE_NAME.test(name)) throw new Error('that is no name for a file');
    if (typeof text !== 'string' || text.length > LONGEST_TEXT) throw new Error('that is no text to save');
    const { canceled, filePath } = await this.#dialog.showSaveDialog(window, { defaultPath: name });
    if (canceled || !filePath) return false;
    try {
      await writeFile(filePath, text);
    } catch (error) {
      this.#dialog.showErrorBox('The file was not saved', /** @type {Error} */ (error).message);
      return false;
    }
    return true;
  }

  /** @param {unknown} backend */
  #startWorker(backend) {
    if (typeof backend !== 'string') throw new Error('that is no name of a backend');
    return this.#worker.start(backend);
  }
}
