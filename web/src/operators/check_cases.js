/**
 * The attention operators held against the reference on this browser's GPU, case by case.
 *
 *     const reports = await checkCases(await listCases(), { onReport: ({ name, outcome }) => console.log(name, outcome) });
 *
 * @import {AdapterInfo, CaseReport, CheckEvent, LoadProgress, VectorFile} from '../protocol.js'
 */

import { PageloomError } from '../errors.js';
import { startWorker } from '../worker_client.js';

/** Where the page's own cases lie, from its folder. */
const PUBLISHED = 'vectors/index.json';

/**
 * @typedef {object} CheckOptions
 * @property {'gpu' | 'software'} [prefer]  The kind of adapter to take.
 * @property {string | null} [tier]  Run each case on this tier or not at all; null takes the fastest that can.
 * @property {boolean} [baseline]  With the least that any WebGPU adapter offers.
 * @property {(progress: LoadProgress) => void} [onProgress]  Python's start.
 * @property {(adapter: AdapterInfo) => void} [onAdapter]
 * @property {(report: CaseReport) => void} [onReport]  Called as each case ends.
 * @property {AbortSignal} [signal]  Stops the run; it then rejects with the signal's reason.
 */

/**
 * The cases of an index, each with the address of its file.
 * @param {URL | string} [index]  By default the page's own.
 * @returns {Promise<VectorFile[]>}
 */
export async function listCases(index = PUBLISHED) {
  const url = new URL(index, document.baseURI);
  const response = await fetch(url);
  if (!response.ok) {
    const message = `there are no conformance cases at ${url.href} (HTTP ${response.status})`;
    throw new PageloomError({ message, type: 'invalid_request_error', param: 'index', code: 'invalid_argument' });
  }
  const { cases } = await response.json();
  return cases.map((/** @type {any} */ { name, operator, file }) => ({
    name,
    operator,
    url: new URL(file, url).href,
  }));
}

/**
 * Runs cases one after another in a worker of their own.
 * @param {VectorFile[]} files
 * @param {CheckOptions} [options]
 * @returns {Promise<CaseReport[]>}
 */
export async function checkCases(
  files,
  { prefer, tier = null, baseline = false, onProgress, onAdapter, onReport, signal } = {},
) {
  signal?.throwIfAborted();
  const client = startWorker();
  /** @type {CaseReport[]} */
  const reports = [];
  const onEvent = (/** @type {CheckEvent} */ event) => {
    if ('stage' in event) onProgress?.(event);
    else if ('adapter' in event) onAdapter?.(event.adapter);
    else {
      reports.push(event.report);
      onReport?.(event.report);
    }
  };
  await client.callOrClose('checkCases', { files, tier, prefer: prefer ?? null, baseline }, { onEvent, signal });
  client.close();
  return reports;
}
