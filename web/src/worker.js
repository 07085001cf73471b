/**
 * The Web Worker: Python in Pyodide over WebGPU. Calls come in, replies go out, as `protocol.js` says.
 * @import {PyodideInterface} from 'pyodide'
 * @import {Inspection} from './inspect.js'
 * @import {Call, CacheFit, Inspected, LoadParams, LoadProgress, LoadedModel, ModelChoice, Reply} from './protocol.js'
 */

import * as bridge from './bridge.js';
import { errorObject, invalidArgument, PageloomError } from './errors.js';
import { inspectChoice } from './inspect.js';
import { keepFile, openChoice } from './model_file.js';
import { runBenches } from './operators/run_benches.js';
import { runCases } from './operators/run_cases.js';
import { HOLDS_LOCK } from './protocol.js';
import { bootPython } from './python.js';
import { listModels, removeModel } from './storage.js';
import { whyNoWebGpu } from './webgpu_support.js';

/** The page's folder: the worker lies one folder below it, in the sources and in the build. */
const ROOT = new URL('../', self.location.href);

/**
 * The Python side, `pageloom.session`; what crosses is JSON text.
 * @typedef {object} Session
 * @property {(calls: string) => void} generate
 * @property {(id: number) => void} abort
 * @property {(id: number) => void} watch
 * @property {(reason: string) => void} device_lost
 * @property {() => string} stats
 * @property {() => string} snapshot
 * @property {() => string} describe
 * @property {(fields: string) => string} count_tokens
 */

/** @type {Promise<PyodideInterface> | null} */
let booting = null;
/** @type {Inspection | null} */
let inspection = null;

/** @type {Session | null} */
let session = null;
/** @type {unknown} The device that was opened last; those before it have been replaced. */
let device = null;

/** The bridge as Python gets it: a device that is lost while nothing runs is replaced at once, too. */
const watchedBridge = {
  ...bridge,
  /** @param {Parameters<typeof bridge.openGpu>[0]} options */
  async openGpu(options) {
    const gpu = await bridge.openGpu(options);
    device = gpu;
    gpu.lost.then((reason) => device === gpu && session?.device_lost(reason));
    return gpu;
  },
};

/** @type {Record<string, (params: any, onEvent: (event: object) => void) => unknown>} */
const METHODS = {
  load,
  abort: ({ id }) => loaded().abort(id) ?? null,
  stats: () => JSON.parse(loaded().stats()),
  snapshot: () => JSON.parse(loaded().snapshot()),
  countTokens: ({ fields }) => parseAnswer(loaded().count_tokens(JSON.stringify(fields))),
  inspect,
  fit,
  storedModels: listModels,
  removeModel: async ({ key }) => (await removeModel(key)) ?? null,
  checkCases: async (params, onEvent) => {
    await requireWebGpu();
    return runCases(params, bridge, ROOT, onEvent);
  },
  bench: async (params, onEvent) => {
    await requireWebGpu();
    return runBenches(params, bridge, ROOT, onEvent);
  },
};

navigator.locks?.request(self.name, () => {
  self.postMessage(HOLDS_LOCK);
  return new Promise(() => {});
});

self.onmessage = ({ data }) => {
  const calls = /** @type {Call[]} */ (data);
  const jobs = calls.filter(({ method }) => method === 'generate');
  if (jobs.length > 0) generate(jobs);
  for (const call of calls) {
    if (call.method === 'watch') watch(call.id);
    else if (call.method !== 'generate') answer(call);
  }
};

/** @param {Call} call */
async function answer({ id, method, params }) {
  try {
    const handler = METHODS[method];
    if (!handler) throw invalidArgument(`there is no method ${method}`);
    post([{ id, result: await handler(params, (event) => post([{ id, event }])) }]);
  } catch (error) {
    post([{ id, error: errorObject(error) }]);
  }
}

/** @param {Call[]} jobs */
function generate(jobs) {
  try {
    loaded().generate(JSON.stringify(jobs.map(({ id, params }) => ({ id, fields: params }))));
  } catch (error) {
    post(jobs.map(({ id }) => ({ id, error: errorObject(error) })));
  }
}

/** @param {number} id  Python answers under it. */
function watch(id) {
  try {
    loaded().watch(id);
  } catch (error) {
    post([{ id, error: errorObject(error) }]);
  }
}

/**
 * @param {LoadParams} params
 * @param {(progress: LoadProgress) => void} onProgress
 * @returns {Promise<LoadedModel>}
 */
async function load({ model, store, options }, onProgress) {
  if (session) throw invalidArgument('this worker has a model already; start another engine');
  await requireWebGpu();
  const [python, file] = await Promise.all([startPython(onProgress), openChoice(model, store, ROOT, onProgress)]);
  const module = python.pyimport('pageloom.tab.session');
  const started = await module.start(
    watchedBridge,
    file.source,
    JSON.stringify(options),
    postText,
    (/** @type {string} */ text) => onProgress(JSON.parse(text)),
  );
  if (typeof started === 'string') {
    const error = new PageloomError(JSON.parse(started));
    if (error.code === 'bad_model_file' && file.stored) await removeModel(file.stored);
    throw error;
  }
  session = started;
  const kept = file.keep ? await keepFile(file.keep, file.name, onProgress) : { stored: file.stored, warnings: [] };
  const described = JSON.parse(loaded().describe());
  return {
    ...described,
    name: file.name,
    size: file.source.size,
    stored: kept.stored,
    warnings: [...file.warnings, ...described.warnings, ...kept.warnings],
  };
}

/**
 * Reads the header of a model that may be loaded later.
 * @param {{model: ModelChoice}} params
 * @param {(progress: LoadProgress) => void} onProgress
 * @returns {Promise<Inspected>}
 */
async function inspect({ model }, onProgress) {
  await requireWebGpu();
  const result = await inspectChoice(model, ROOT, startPython(onProgress));
  inspection = result.inspection;
  return result.inspected;
}

/**
 * @param {{options: import('./protocol.js').EngineOptions}} params
 * @returns {CacheFit}
 */
function fit({ options }) {
  if (!inspection) throw invalidArgument('inspect a model that can run here before asking what fits');
  return parseAnswer(inspection.fit(JSON.stringify(options))).cache;
}

/** @param {(progress: LoadProgress) => void} onProgress */
function startPython(onProgress) {
  booting ??= bootPython(ROOT, (done, total) => onProgress({ stage: 'python', done, total }));
  return booting;
}

/**
 * What Python answered, or the error that it answered with.
 * @param {string} text
 */
function parseAnswer(text) {
  const answer = JSON.parse(text);
  if ('error' in answer) throw new PageloomError(answer.error);
  return answer;
}

function loaded() {
  if (!session) throw invalidArgument('no model is loaded');
  return session;
}

/** Says so before anything is fetched where nothing could run it. */
async function requireWebGpu() {
  const reason = await whyNoWebGpu();
  if (reason === null) return;
  throw new PageloomError({ message: reason, type: 'invalid_request_error', param: null, code: 'no_webgpu' });
}

/** @param {Reply[]} replies */
function post(replies) {
  self.postMessage(replies);
}

/** @param {string} replies */
function postText(replies) {
  self.postMessage(JSON.parse(replies));
}
