/**
 * How fast a batch goes and how long it will take. Pure: the caller tells the time, in milliseconds.
 * @import {BatchRow} from './batch_run.js'
 */

const WINDOW_MS = 5000;
const SLICE_MS = 250;

/** Tokens a second, over the last five seconds or since the first token if that is later. */
export class Rate {
  /** @type {{start: number, tokens: number}[]} */
  #slices = [];

  /** @param {number} now */
  addToken(now) {
    const last = this.#slices.at(-1);
    if (last && now - last.start < SLICE_MS) last.tokens += 1;
    else this.#slices.push({ start: now, tokens: 1 });
  }

  /**
   * @param {number} now
   * @returns {number}  0 until it can be told.
   */
  perSecond(now) {
    this.#slices = this.#slices.filter(({ start }) => now - start <= WINDOW_MS);
    const [first] = this.#slices;
    if (!first || now - first.start < SLICE_MS) return 0;
    return (1000 * this.#slices.reduce((sum, { tokens }) => sum + tokens, 0)) / (now - first.start);
  }
}

/**
 * Seconds until the rows that run have ended, at `rate` tokens a second. Rows are taken to be as long as those that have
 * ended, and as long as they may be where none has: `atMost`. Null where there is nothing to go on.
 * @param {BatchRow[]} rows
 * @param {number} rate
 * @returns {{seconds: number, atMost: boolean} | null}
 */
export function timeLeft(rows, rate) {
  if (rate <= 0) return null;
  const ended = rows.flatMap(({ live, outcome }) => (!live && outcome?.tokens ? [outcome.tokens.completion] : []));
  const mean = ended.reduce((sum, tokens) => sum + tokens, 0) / ended.length;
  let tokens = 0;
  for (const { live } of rows) {
    if (!live) continue;
    const most = live.job.max_tokens ?? Number.POSITIVE_INFINITY;
    // Half of what is still allowed, for a row that is longer than those that have ended.
    const expected = live.tokens < mean ? Math.min(mean, most) : (live.tokens + most) / 2;
    tokens += Math.max((ended.length > 0 ? expected : most) - live.tokens, 1);
  }
  return Number.isFinite(tokens) ? { seconds: tokens / rate, atMost: ended.length === 0 } : null;
}

/** @param {number} seconds */
export function durationInWords(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
