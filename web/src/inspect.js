/**
 * What a model file says of itself before it is loaded, and whether this adapter can run it; for the worker.
 * @import {Inspected, ModelChoice} from './protocol.js'
 * @import {RangedSource} from './gpu.js'
 */

import { openSource } from './bridge.js';
import { invalidArgument } from './errors.js';
import { chooseAdapter, describeAdapter, limitsOf } from './gpu_adapter.js';
import { fileName, lookUp, urlOf } from './model_file.js';
import { servesRanges } from './sources.js';
import { hasRoom, openModel } from './storage.js';

/**
 * The Python side, `pageloom.tab.inspect`; what crosses is JSON text.
 * @typedef {{facts: () => string, fit: (options: string) => string}} Inspection
 *
 * @typedef {object} Located
 * @property {string} name
 * @property {number} size  Bytes of the file.
 * @property {number} done  Of those, what is in this browser's storage.
 * @property {RangedSource | null} source  Null where the header cannot be read without the whole file.
 */

/**
 * @param {ModelChoice} choice
 * @param {URL} root  The page's folder.
 * @param {Promise<import('pyodide').PyodideInterface>} booting
 * @returns {Promise<{inspected: Inspected, inspection: Inspection | null}>}
 */
export async function inspectChoice(choice, root, booting) {
  const [python, { source, ...file }, adapter] = await Promise.all([
    booting,
    locate(choice, root),
    chooseAdapter(null),
  ]);
  const told = { ...file, has_room: 'stored' in choice || (await hasRoom(file.size - file.done)) };
  if (!source) return { inspected: { ...told, facts: null, refusal: null }, inspection: null };
  const described = describeAdapter(adapter.info, adapter.features, limitsOf(adapter.limits));
  const inspection = await python.pyimport('pageloom.tab.inspect').inspect(source, described);
  if (typeof inspection === 'string') {
    return { inspected: { ...told, facts: null, refusal: JSON.parse(inspection) }, inspection: null };
  }
  return { inspected: { ...told, facts: JSON.parse(inspection.facts()), refusal: null }, inspection };
}

/**
 * @param {ModelChoice} choice
 * @param {URL} root
 * @returns {Promise<Located>}
 */
async function locate(choice, root) {
  if ('blob' in choice) {
    return { name: choice.name, size: choice.blob.size, done: 0, source: await openSource(choice.blob) };
  }
  if ('stored' in choice) return locateStored(choice.stored);
  const url = urlOf(choice, root);
  const { copy, file } = await lookUp(url);
  if (copy && !file) return locateStored(copy.key);
  const { size } = /** @type {{size: number}} */ (file ?? copy);
  const source = (await servesRanges(url)) ? await openSource(url) : null;
  return { name: fileName(url), size, done: copy?.done ?? 0, source };
}

/** @param {string} key */
async function locateStored(key) {
  const file = await openModel(key);
  if (!file) throw invalidArgument('that model is no longer in this browser; load it again from its file', 'model');
  return { name: file.name, size: file.size, done: file.size, source: await openSource(file) };
}
