/**
 * What each page of the pool is, how it changed, and the pool in words. Pure.
 * @import {BlockView, EngineSnapshot} from '../protocol.js'
 */

import { counted } from '../words.js';

/** @typedef {'owned' | 'shared' | 'cached' | 'free'} PageKind */

/**
 * @param {BlockView | undefined} block  Free pages have none.
 * @returns {PageKind}
 */
export function pageKind(block) {
  if (!block) return 'free';
  if (block.owners.length > 1) return 'shared';
  if (block.owners.length === 1) return 'owned';
  return block.serial === null ? 'free' : 'cached';
}

/**
 * @param {Pick<EngineSnapshot, 'blocks' | 'num_blocks'>} snapshot
 * @returns {Record<PageKind, number>}
 */
export function countPages({ blocks, num_blocks }) {
  const counts = { owned: 0, shared: 0, cached: 0, free: num_blocks };
  for (const block of blocks) {
    counts[pageKind(block)] += 1;
    counts.free -= 1;
  }
  return counts;
}

/** @param {Pick<EngineSnapshot, 'blocks' | 'num_blocks' | 'block_size'>} snapshot */
export function poolInWords(snapshot) {
  const { owned, shared, cached, free } = countPages(snapshot);
  const total = counted(snapshot.num_blocks, 'page');
  return (
    `${total} of ${snapshot.block_size} tokens: ${owned} owned by one request, ${shared} shared by several, ` +
    `${cached} kept for reuse, ${free} free.`
  );
}

/**
 * Pages whose kept content was given up for other content since an earlier snapshot, and pages whose kept content was
 * taken up again by a request.
 * @param {BlockView[]} before
 * @param {BlockView[]} after
 * @returns {{evicted: number[], reused: number[]}}
 */
export function pageChanges(before, after) {
  const now = new Map(after.map((block) => [block.id, block]));
  const kept = before.filter((block) => pageKind(block) === 'cached');
  const evicted = kept.filter(({ id, serial }) => now.get(id)?.serial !== serial);
  const reused = kept.filter(({ id, serial }) => {
    const block = now.get(id);
    return block?.serial === serial && block.owners.length > 0;
  });
  return { evicted: evicted.map(({ id }) => id), reused: reused.map(({ id }) => id) };
}

/**
 * @param {number} id
 * @param {BlockView | undefined} block
 * @param {(owner: string) => string} nameOf
 */
export function pageInWords(id, block, nameOf) {
  const names = block?.owners.map(nameOf).join(', ');
  const words = {
    free: 'free',
    cached: 'kept for a request that begins alike',
    owned: `owned by ${names}`,
    shared: `shared by ${names}`,
  };
  return `Page ${id}: ${words[pageKind(block)]}.`;
}

/**
 * A hue for a request, in degrees: neighbours in arrival are far apart.
 * @param {number} arrival
 */
export function hueOf(arrival) {
  return Math.round((arrival * 137.508 + 210) % 360);
}
