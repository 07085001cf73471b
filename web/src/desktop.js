/**
 * What the desktop app offers the page; null in a browser. `web/electron/preload.cjs` puts it there.
 *
 * @typedef {{url: string, name: string}} OpenedFile  An address that only this page can read the file at.
 *
 * @typedef {object} DesktopApp
 * @property {() => Promise<OpenedFile | null>} openModel  By the system's dialog; null where the user changed their mind.
 * @property {(name: string, text: string) => Promise<boolean>} save  By the system's dialog.
 * @property {(backend: string) => Promise<{address: string, token: string}>} startWorker
 * @property {() => Promise<void>} stopWorker
 * @property {(callback: (file: OpenedFile) => void) => void} onOpened  Model files that the system hands to the app.
 */

/** @type {DesktopApp | null} */
export const desktop = /** @type {any} */ (globalThis).pageloomDesktop ?? null;
