import { resolve } from 'node:path';
import { defineConfig } from 'vite';
import { viteStaticCopy } from 'vite-plugin-static-copy';
import { HEADERS, POLICIES } from './web/policy.js';

const web = resolve(import.meta.dirname, 'web');

/** @returns {import('vite').Plugin} */
function securityPolicy() {
  return {
    name: 'security-policy',
    apply: 'build', // the development server puts scripts of its own into the markup
    transformIndexHtml(_html, { path }) {
      const content = POLICIES[/** @type {keyof typeof POLICIES} */ (path.slice(1))];
      const attrs = { 'http-equiv': 'Content-Security-Policy', content };
      return [{ tag: 'meta', attrs, injectTo: 'head-prepend' }];
    },
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: 'headers.json', source: `${JSON.stringify(HEADERS, null, 2)}\n` });
    },
  };
}

export default defineConfig(({ command }) => ({
  root: web,
  // Relative addresses: the built page works in any folder of any server.
  base: './',
  worker: { format: 'es' },
  build: {
    outDir: resolve(import.meta.dirname, 'dist'),
    emptyOutDir: true,
    target: 'esnext',
    assetsInlineLimit: 0, // the policy allows no data: addresses
    rolldownOptions: {
      input: {
        index: resolve(web, 'index.html'),
        console: resolve(web, 'console.html'),
        pageloom: resolve(web, 'src/pageloom.js'),
      },
      // `pageloom.js` keeps its name and its exports: other pages import it.
      preserveEntrySignatures: 'exports-only',
      output: {
        entryFileNames: (chunk) => (chunk.name === 'pageloom' ? 'pageloom.js' : 'assets/[name]-[hash].js'),
      },
    },
  },
  plugins: [
    securityPolicy(),
    viteStaticCopy({
      targets: [
        {
          src: '../node_modules/pyodide/{pyodide.mjs,pyodide.asm.mjs,pyodide.asm.wasm,python_stdlib.zip,pyodide-lock.json}',
          dest: 'pyodide',
        },
        { src: '../build/wheels/*', dest: 'wheels' },
        { src: '../build/vectors/*', dest: 'vectors' },
        // The built page leaves the model to its server.
        ...(command === 'serve' ? [{ src: '../models/*.gguf', dest: 'model' }] : []),
      ],
    }),
  ],
}));
