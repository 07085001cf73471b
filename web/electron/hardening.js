/**
 * What pages in the app may not: go anywhere else, open windows, get permissions, or have anything of Node's.
 * @import {Session, WebContents, WebPreferences} from 'electron'
 */

import { ORIGIN } from './page_protocol.js';

/**
 * To copy results, and to ask a local worker: Chromium has a page's requests to this machine permitted, by either name.
 * The page's policy keeps its http to this machine.
 */
const PERMISSIONS = ['clipboard-sanitized-write', 'loopback-network', 'local-network-access'];

/**
 * @param {string} preload
 * @returns {WebPreferences}
 */
export function webPreferences(preload) {
  return {
    preload,
    contextIsolation: true,
    sandbox: true,
    nodeIntegration: false,
    nodeIntegrationInWorker: false,
    nodeIntegrationInSubFrames: false,
    webSecurity: true,
    webviewTag: false,
    // Answers go on in a window that is behind others.
    backgroundThrottling: false,
  };
}

/** @param {string} address */
export function isOwn(address) {
  return URL.canParse(address) && new URL(address).href.startsWith(`${ORIGIN}/`);
}

/** @param {Session} session */
export function denyPermissions(session) {
  session.setPermissionRequestHandler((_contents, permission, answer, { requestingUrl }) =>
    answer(PERMISSIONS.includes(permission) && isOwn(requestingUrl)),
  );
  session.setPermissionCheckHandler(
    (_contents, permission, origin) => PERMISSIONS.includes(permission) && isOwn(`${origin.replace(/\/$/, '')}/`),
  );
  session.setDevicePermissionHandler(() => false);
}

/**
 * Keeps every page of the app where it is. A link to the web opens in the user's browser.
 * @param {WebContents} contents
 * @param {(address: string) => unknown} openOutside
 */
export function keepInside(contents, openOutside) {
  contents.on('will-navigate', (event) => {
    if (!isOwn(event.url)) event.preventDefault();
  });
  contents.on('will-redirect', (event) => event.preventDefault());
  contents.on('will-frame-navigate', (event) => {
    if (!isOwn(event.url)) event.preventDefault();
  });
  contents.on('will-attach-webview', (event) => event.preventDefault());
  contents.setWindowOpenHandler(({ url }) => {
    if (URL.canParse(url) && new URL(url).protocol === 'https:') openOutside(url);
    return { action: 'deny' };
  });
}
