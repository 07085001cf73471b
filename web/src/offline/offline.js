/**
 * Lets the page work without a network, and says when a newer version is there.
 * @import {Notices} from '../notices/notices.js'
 */

import { desktop } from '../desktop.js';

/** @param {Notices} notices */
export async function workOffline(notices) {
  // The desktop app has the page's files anyway.
  if (!import.meta.env.PROD || !navigator.serviceWorker || desktop) return;
  followVersion(notices);
  const address = new URL('service_worker.js', document.baseURI);
  // Where the browser keeps nothing, as in private windows, the page works with a network only.
  const registration = await navigator.serviceWorker.register(address).catch(() => null);
  if (!registration) return;
  if (registration.waiting) offer(registration.waiting, notices);
  registration.addEventListener('updatefound', () => {
    const worker = registration.installing;
    worker?.addEventListener('statechange', () => {
      // The first version that is ever kept replaces none.
      if (worker.state === 'installed' && navigator.serviceWorker.controller) offer(worker, notices);
    });
  });
}

let isStartedHere = false;

/**
 * Reloads the tab in which the user let a newer version start, and tells the others, which show the older one still.
 * @param {Notices} notices
 */
function followVersion(notices) {
  const { serviceWorker } = navigator;
  const isKept = serviceWorker.controller !== null;
  serviceWorker.addEventListener('controllerchange', () => {
    if (isStartedHere) return location.reload();
    if (!isKept) return; // the first version that is ever kept replaces none
    notices.show('update', {
      title: 'A newer version of this page was started in another tab',
      text: 'This one still shows the older version, whose files are kept no longer; after a reload a model is loaded again.',
      actions: [['Reload', () => location.reload()]],
    });
  });
}

/**
 * @param {ServiceWorker} worker  Keeps the new version and waits.
 * @param {Notices} notices
 */
function offer(worker, notices) {
  const start = () => {
    isStartedHere = true;
    worker.postMessage('start');
  };
  notices.show('update', {
    title: 'A newer version of this page is ready',
    text: 'It starts when all tabs of this page are closed, or now; a loaded model is then loaded again.',
    actions: [['Start it now', start]],
  });
}
