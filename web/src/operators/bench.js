/**
 * PagedAttention measured on this browser's GPU, each tier of each shape in turns.
 *
 *     const { results } = await runBench({ onRows: (rows) => console.table(rows) });
 *
 * @import {BenchDescribed, BenchEvent, BenchRow} from '../protocol.js'
 * @import {BenchReport} from './bench_words.js'
 */

import { startWorker } from '../worker_client.js';

/**
 * @param {object} [options]
 * @param {'gpu' | 'software'} [options.prefer]  The kind of adapter to take.
 * @param {string} [options.shapes]  Words that the names of those measured have; without any, all are.
 * @param {(described: BenchDescribed) => void} [options.onDescribed]
 * @param {(rows: BenchRow[]) => void} [options.onRows]  Called as each shape is measured.
 * @param {AbortSignal} [options.signal]  Stops the run; it then rejects with the signal's reason.
 * @returns {Promise<BenchReport & {clock: 'gpu' | 'host'}>}
 */
export async function runBench({ prefer, shapes = '', onDescribed, onRows, signal } = {}) {
  signal?.throwIfAborted();
  const client = startWorker();
  /** @type {BenchRow[]} */
  const results = [];
  /** @type {BenchDescribed | null} */
  let described = null;
  const onEvent = (/** @type {BenchEvent} */ event) => {
    if ('described' in event) {
      described = event.described;
      onDescribed?.(event.described);
    } else if ('rows' in event) {
      results.push(...event.rows);
      onRows?.(event.rows);
    }
  };
  await client.callOrClose('bench', { prefer: prefer ?? null, shapes }, { onEvent, signal });
  client.close();
  return reportOf(/** @type {BenchDescribed} */ (/** @type {unknown} */ (described)), results);
}

/**
 * @param {BenchDescribed} described
 * @param {BenchRow[]} results
 * @returns {BenchReport & {clock: 'gpu' | 'host'}}
 */
export function reportOf({ adapter, rates, clock }, results) {
  const { read: read_bytes_per_second, compute: operations_per_second } = rates;
  return /** @type {any} */ ({
    backend: 'tab',
    adapter,
    clock,
    read_bytes_per_second,
    operations_per_second,
    results,
  });
}
