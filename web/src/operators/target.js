/**
 * The operators on a local worker, over its streams of events.
 * @import {AdapterInfo, CaseReport} from '../protocol.js'
 * @import {LocalServer} from '../server/local_server.js'
 * @import {BenchReport} from './bench_words.js'
 */

import { PageloomError } from '../errors.js';
import { serverEvents } from '../server/events.js';
import { patternOf } from './name_filter.js';

/** @typedef {{server: LocalServer, backend: string} | null} Target  Null is this tab. */

/**
 * What the operators may be run on besides this tab: the backends that work on the worker's machine.
 * @param {LocalServer} server
 * @returns {Promise<NonNullable<Target>[]>}
 */
export async function targetsOf(server) {
  const { backends } = await (await server.ask('/v1/ops')).json();
  return backends
    .filter((/** @type {any} */ { why_not }) => why_not === null)
    .map((/** @type {any} */ { backend }) => ({ server, backend }));
}

/**
 * Runs the main cases whose names have all words of `text`, in their order.
 * @param {NonNullable<Target>} target
 * @param {string} text
 * @param {{signal: AbortSignal, onReport: (report: CaseReport, total: number) => void}} options
 * @returns {Promise<AdapterInfo>}
 */
export async function checkOnServer({ server, backend }, text, { signal, onReport }) {
  const body = { backend, quick: true, case: patternOf(text) };
  const response = await server.ask('/v1/checks', { body, signal });
  for await (const event of serverEvents(response)) {
    if (event.error) throw new PageloomError(event.error);
    if (event.adapter) return event.adapter;
    onReport(event.report, event.total);
  }
  throw cutOff();
}

/**
 * Measures the main shapes whose names have all words of `text`, in their order.
 * @param {NonNullable<Target>} target
 * @param {string} text
 * @param {{signal: AbortSignal, onRows: (rows: object[], total: number) => void}} options  `onRows` gets what was
 *   measured of one of `total` shapes.
 * @returns {Promise<BenchReport>}
 */
export async function benchOnServer({ server, backend }, text, { signal, onRows }) {
  const body = { backend, quick: true, shape: patternOf(text) };
  const response = await server.ask('/v1/benches', { body, signal });
  for await (const event of serverEvents(response)) {
    if (event.error) throw new PageloomError(event.error);
    if (event.result) return { backend, ...event.result };
    onRows(event.rows, event.total);
  }
  throw cutOff();
}

function cutOff() {
  const message = 'the local worker ended the run before its end';
  return new PageloomError({ message, type: 'server_error', param: null, code: 'no_answer' });
}
