/**
 * The page without a network: its own files, Python's and the wheels are kept as they are first fetched, and taken from
 * there. A new version is kept beside the old one until the user lets it start. Models are not here but in the
 * browser's storage.
 */

import { cleanupOutdatedCaches, precacheAndRoute } from 'workbox-precaching';
import { registerRoute } from 'workbox-routing';
import { NetworkFirst } from 'workbox-strategies';

const scope = /** @type {any} */ (self);

// @ts-expect-error the build puts the list in its place
precacheAndRoute(__PAGE_FILES__, { ignoreURLParametersMatching: [/./] });
cleanupOutdatedCaches();
registerRoute(({ url }) => url.pathname.endsWith('.safetensors'), new NetworkFirst({ cacheName: 'pageloom-vectors' }));

scope.addEventListener('message', (/** @type {MessageEvent} */ { data }) => {
  if (data === 'start') scope.skipWaiting();
});
