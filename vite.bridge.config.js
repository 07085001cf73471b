import { resolve } from 'node:path';
import { defineConfig } from 'vite';

// The bridge as one file inside the Python wheel, for a Pyodide that is not started by the page.
export default defineConfig({
  publicDir: false,
  build: {
    outDir: resolve(import.meta.dirname, 'py/pageloom/tab'),
    emptyOutDir: false,
    target: 'esnext',
    lib: {
      entry: resolve(import.meta.dirname, 'web/src/bridge.js'),
      formats: ['es'],
      fileName: () => 'bridge.mjs',
    },
  },
});
