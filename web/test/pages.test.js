import assert from 'node:assert/strict';
import { test } from 'node:test';
import { layoutOf, pageAt, placeOf } from '../src/inside/map_layout.js';
import { countPages, hueOf, pageChanges, pageInWords, pageKind, poolInWords } from '../src/inside/pages.js';

/**
 * @param {number} id
 * @param {string[]} owners
 * @param {number | null} serial
 */
const block = (id, owners, serial = null) => ({ id, owners, references: owners.length, serial });

test('a page is owned, shared, cached or free', () => {
  assert.equal(pageKind(block(0, ['1'])), 'owned');
  assert.equal(pageKind(block(0, ['1', '2'], 7)), 'shared');
  assert.equal(pageKind(block(0, ['1'], 7)), 'owned');
  assert.equal(pageKind(block(0, [], 7)), 'cached');
  assert.equal(pageKind(undefined), 'free');
});

test('the pool in words counts every page once', () => {
  const pool = { block_size: 16, num_blocks: 5, blocks: [block(0, ['1']), block(3, ['1', '2'], 4), block(4, [], 5)] };
  assert.deepEqual(countPages(pool), { owned: 1, shared: 1, cached: 1, free: 2 });
  assert.equal(
    poolInWords(pool),
    '5 pages of 16 tokens: 1 owned by one request, 1 shared by several, 1 kept for reuse, 2 free.',
  );
});

test('kept content that is gone was given up, and kept content with an owner was taken up again', () => {
  const before = [block(0, [], 10), block(1, [], 11), block(2, [], 12), block(3, ['9'], 13)];
  const after = [block(0, ['5']), block(1, ['5'], 11), block(2, [], 12), block(3, [], 13)];
  assert.deepEqual(pageChanges(before, after), { evicted: [0], reused: [1] });
  assert.deepEqual(pageChanges(before, []), { evicted: [0, 1, 2], reused: [] });
});

test('a page is told with the names of its owners', () => {
  const nameOf = (/** @type {string} */ owner) => `Chat ${owner}`;
  assert.equal(pageInWords(3, block(3, ['1', '2'], 1), nameOf), 'Page 3: shared by Chat 1, Chat 2.');
  assert.equal(pageInWords(4, undefined, nameOf), 'Page 4: free.');
});

test('requests that arrive one after another have hues far apart', () => {
  for (let arrival = 0; arrival < 200; arrival += 1) {
    const apart = Math.abs(hueOf(arrival) - hueOf(arrival + 1));
    assert.ok(Math.min(apart, 360 - apart) > 90);
  }
});

test('every page has a place of its own within the picture, and is found at it', () => {
  for (const [count, width] of /** @type {[number, number][]} */ ([
    [1, 300],
    [1388, 700],
    [65536, 340],
  ])) {
    const layout = layoutOf(count, width);
    for (const id of [0, 1, layout.columns, count - 1].filter((page) => page < count)) {
      const { x, y } = placeOf(layout, id);
      assert.ok(x + layout.side <= width && y + layout.side <= layout.height);
      assert.equal(pageAt(layout, x, y), id);
      assert.equal(pageAt(layout, x + layout.side - 1, y + layout.side - 1), id);
    }
    assert.equal(pageAt(layout, -1, 0), null);
    assert.equal(pageAt(layout, 0, layout.height + 1), null);
  }
});
