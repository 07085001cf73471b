import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hueOf, pageKind, poolInWords } from '../src/inside/pages.js';

/** @param {string[]} owners */
const block = (owners, cached = false) => ({ owners, references: owners.length, serial: cached ? 7 : null });

test('a page is owned, shared, cached or free', () => {
  assert.equal(pageKind(block(['1'])), 'owned');
  assert.equal(pageKind(block(['1', '2'], true)), 'shared');
  assert.equal(pageKind(block(['1'], true)), 'owned');
  assert.equal(pageKind(block([], true)), 'cached');
  assert.equal(pageKind(block([])), 'free');
});

test('the pool in words counts every page once', () => {
  const blocks = [block(['1']), block(['1', '2']), block([], true), block([]), block([])];
  const words = poolInWords({ block_size: 16, blocks, running: [], waiting: [], steps: [], ended: [] });
  assert.equal(words, '5 pages of 16 tokens: 1 owned by one request, 1 shared by several, 1 kept for reuse, 2 free.');
});

test('requests that arrive one after another have hues far apart', () => {
  for (let arrival = 0; arrival < 200; arrival += 1) {
    const apart = Math.abs(hueOf(arrival) - hueOf(arrival + 1));
    assert.ok(Math.min(apart, 360 - apart) > 90);
  }
});
