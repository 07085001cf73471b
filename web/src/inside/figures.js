/**
 * The figures of the view, from what the engine tells. Pure.
 * @import {EndedView, EngineStats, StepView} from '../protocol.js'
 */

import { counted } from '../words.js';

/**
 * @param {number[]} values
 * @returns {number | null}  Null where there are none.
 */
export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const [lower, upper] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[Math.floor(sorted.length / 2)]];
  return lower === undefined || upper === undefined ? null : (lower + upper) / 2;
}

/**
 * Seconds or milliseconds, whichever reads better.
 * @param {number} seconds
 */
export function timeInWords(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

/**
 * How long requests that ended lately had to wait for their first token; null where none had one.
 * @param {EndedView[]} ended
 * @returns {{median: number, slowest: number, count: number} | null}
 */
export function firstTokens(ended) {
  const times = ended.flatMap(({ first_token }) => first_token ?? []);
  const middle = median(times);
  return middle === null ? null : { median: middle, slowest: Math.max(...times), count: times.length };
}

/**
 * Tokens a second after the first one; null where there are too few to say.
 * @param {EndedView} request
 */
export function decodeRate({ first_token, finished, output_tokens }) {
  if (first_token === null || output_tokens < 2 || finished <= first_token) return null;
  return (output_tokens - 1) / (finished - first_token);
}

/**
 * The share of all prompt tokens that did not have to be computed, since their pages were shared or kept; null before
 * the first.
 * @param {Pick<EngineStats, 'cached_tokens' | 'prefill_tokens'>} stats
 */
export function sharedShare({ cached_tokens, prefill_tokens }) {
  const all = cached_tokens + prefill_tokens;
  return all === 0 ? null : cached_tokens / all;
}

/** @param {StepView[]} steps */
export function stepsInWords(steps) {
  if (steps.length === 0) return 'No step has run yet.';
  const times = steps.map(({ milliseconds }) => milliseconds / 1000);
  const sum = (/** @type {number[]} */ values) => values.reduce((total, value) => total + value, 0);
  const prefill = sum(steps.map(({ prefill_tokens }) => prefill_tokens));
  const decode = sum(steps.map(({ decode_tokens }) => decode_tokens));
  const most = Math.max(...steps.map(({ num_sequences }) => num_sequences));
  return (
    `The last ${counted(steps.length, 'step')} computed ${counted(prefill, 'prompt token')} and ` +
    `${counted(decode, 'answer token')}, up to ${counted(most, 'request')} at once. A step took ` +
    `${timeInWords(/** @type {number} */ (median(times)))} in the median and ${timeInWords(Math.max(...times))} at most.`
  );
}

/** @param {StepView} step */
export function stepInWords({ index, num_sequences, prefill_tokens, decode_tokens, milliseconds }) {
  return (
    `Step ${index + 1}: ${counted(num_sequences, 'request')}, ${counted(prefill_tokens, 'prompt token')}, ` +
    `${counted(decode_tokens, 'answer token')}, ${timeInWords(milliseconds / 1000)}.`
  );
}
