/**
 * What each page of the pool is, and the pool in words. Pure.
 * @import {BlockView, EngineSnapshot} from '../protocol.js'
 */

import { counted } from '../words.js';

/** @typedef {'owned' | 'shared' | 'cached' | 'free'} PageKind */

/**
 * @param {BlockView} block
 * @returns {PageKind}
 */
export function pageKind({ owners, serial }) {
  if (owners.length > 1) return 'shared';
  if (owners.length === 1) return 'owned';
  return serial === null ? 'free' : 'cached';
}

/** @param {EngineSnapshot} snapshot */
export function countPages({ blocks }) {
  const counts = { owned: 0, shared: 0, cached: 0, free: 0 };
  for (const block of blocks) counts[pageKind(block)] += 1;
  return counts;
}

/** @param {EngineSnapshot} snapshot */
export function poolInWords(snapshot) {
  const { owned, shared, cached, free } = countPages(snapshot);
  const total = counted(snapshot.blocks.length, 'page');
  return (
    `${total} of ${snapshot.block_size} tokens: ${owned} owned by one request, ${shared} shared by several, ` +
    `${cached} kept for reuse, ${free} free.`
  );
}

/**
 * A hue for a request, in degrees: neighbours in arrival are far apart.
 * @param {number} arrival
 */
export function hueOf(arrival) {
  return Math.round((arrival * 137.508 + 210) % 360);
}
