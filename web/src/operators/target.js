/**
 * The operators on a local worker, over its streams of events.
 * @import {AdapterInfo, CaseReport} from '../protocol.js'
 * @import {LocalServer} from '../server/local_server.js'
 */

import { PageloomError } from '../errors.js';
import { serverEvents } from '../server/events.js';

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
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const body = { backend, quick: true, ...(words.length > 0 && { case: `*${words.join('*')}*` }) };
  const response = await server.ask('/v1/checks', { body, signal });
  for await (const event of serverEvents(response)) {
    if (event.error) throw new PageloomError(event.error);
    if (event.adapter) return event.adapter;
    onReport(event.report, event.total);
  }
  throw cutOff();
}

/**
 * Measures on the worker; each line of its table is told as it is measured.
 * @param {NonNullable<Target>} target
 * @param {{signal: AbortSignal, onLine: (line: string) => void}} options
 * @returns {Promise<import('./bench_words.js').BenchReport>}
 */
export async function benchOnServer({ server, backend }, { signal, onLine }) {
  const response = await server.ask('/v1/benches', { body: { backend, quick: true }, signal });
  for await (const event of serverEvents(response)) {
    if (event.error) throw new PageloomError(event.error);
    if (event.result) return { backend, ...event.result };
    onLine(event.line);
  }
  throw cutOff();
}

function cutOff() {
  const message = 'the local worker ended the run before its end';
  return new PageloomError({ message, type: 'server_error', param: null, code: 'no_answer' });
}
