import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { defineConfig } from 'vite';

const dist = resolve(import.meta.dirname, 'dist');
/** Kept by a service worker when they are first used, or not the page's own. */
const LEFT_OUT = /^(vectors\/.*\.safetensors|model\/.*|headers\.json|service_worker\.js)$|(^|\/)\./;

/** The built page's files, each with a revision that changes with its content; null where its name does. */
function pageFiles() {
  const names = readdirSync(dist, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(dist, join(entry.parentPath, entry.name)).split(sep).join('/'))
    .filter((name) => !LEFT_OUT.test(name))
    .sort();
  return names.map((url) => ({ url, revision: url.startsWith('assets/') ? null : digest(join(dist, url)) }));
}

/** @param {string} path */
function digest(path) {
  return createHash('sha256').update(readFileSync(path)).digest('hex').slice(0, 16);
}

// The service worker as one classic script, built after the page, whose files it lists.
export default defineConfig({
  publicDir: false,
  define: { __PAGE_FILES__: JSON.stringify(pageFiles()), 'process.env.NODE_ENV': '"production"' },
  build: {
    outDir: dist,
    emptyOutDir: false,
    target: 'esnext',
    lib: {
      entry: resolve(import.meta.dirname, 'web/src/offline/service_worker.js'),
      formats: ['iife'],
      name: 'pageloomOffline',
      fileName: () => 'service_worker.js',
    },
  },
});
