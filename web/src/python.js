import { fetchOrSay } from './errors.js';

/** Steps that `bootPython` reports: the interpreter, micropip, and each package. */
const FIXED_STEPS = 2;

/**
 * Python with the project's wheel installed, all of it from the page's own files.
 * @param {URL} root  The page's folder.
 * @param {(done: number, total: number) => void} [onStep]
 */
export async function bootPython(root, onStep = () => {}) {
  const wheels = new URL('wheels/', root);
  /** @type {{micropip: string, packages: string[]}} */
  const manifest = await fetchJson(new URL('wheels.json', wheels));
  const total = FIXED_STEPS + manifest.packages.length;
  onStep(0, total);
  const indexURL = new URL('pyodide/', root).href;
  /** @type {typeof import('pyodide')} */
  const { loadPyodide } = await import(/* @vite-ignore */ `${indexURL}pyodide.mjs`);
  const python = await loadPyodide({ indexURL });
  onStep(1, total);
  await python.loadPackage(new URL(manifest.micropip, wheels).href, { messageCallback: () => {} });
  // `loadPackage` logs a failed fetch or checksum and resolves all the same.
  if (!('micropip' in python.loadedPackages)) throw new Error(`could not install ${manifest.micropip} of the page`);
  const micropip = python.pyimport('micropip');
  for (const [index, wheel] of manifest.packages.entries()) {
    onStep(FIXED_STEPS + index, total);
    await micropip.install(new URL(wheel, wheels).href);
  }
  micropip.destroy();
  onStep(total, total);
  return python;
}

/** @param {URL} url */
async function fetchJson(url) {
  const response = await fetchOrSay(url);
  if (!response.ok) throw new Error(`the page's server has no ${url.pathname} (HTTP ${response.status})`);
  return response.json();
}
