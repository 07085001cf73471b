import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lexer } from 'marked';
import { GrowingBlocks } from '../src/chat/growing_blocks.js';

/** What ends, joins or reinterprets a block. */
const PIECES = [
  ...[
    'a',
    'word',
    ' ',
    '  ',
    '    ',
    '\t',
    '\n',
    '\n\n',
    '\n \n',
    '\r\n',
    '\r',
    '- ',
    '-',
    '* item',
    '1. ',
    '2',
    '2. x',
  ],
  ...['> ', '>', '# ', '#', '===', '---', '***', '```', '```js\n', '~~~', '`', '|', '| a | b |\n|---|---|\n', '| 1 |'],
  ...['<div>', '</div>', '<!--', '-->', '<pre>', '</pre>', '<?', '?>', '**', '_', '[ ] ', '[a]', '[a](b)', '![', '\\'],
];
const LISTS = ['1. a', '2', '. b', '- a', '-', ' b', '  ', '\n', '\n\n', '\n\n', '> ', 'c'];
const DEFINITIONS = ['[a]: /b', '[a]: /b\n"title', '"', '> [c]: d\n', '[c]', '\n'];

/**
 * Numbers from 0 to below `limit`, the same in each run.
 * @param {number} seed
 */
function numbers(seed) {
  let state = seed;
  return (/** @type {number} */ limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
}

/** @param {string} text */
function wholly(text) {
  return new Lexer({ gfm: true, breaks: true }).lex(text).filter(({ type }) => type !== 'space');
}

/**
 * Lets texts of random pieces grow, and holds each state against the whole text read at once.
 * @param {string[]} pieces
 * @param {number} texts
 */
function grow(pieces, texts) {
  for (let seed = 1; seed <= texts; seed += 1) {
    const next = numbers(seed);
    const blocks = new GrowingBlocks();
    let text = '';
    for (let step = 0; step < 30; step += 1) {
      text += pieces[next(pieces.length)];
      assert.deepEqual(blocks.read(text), wholly(text), JSON.stringify(text));
    }
  }
}

test('a text that grows has the blocks that it has as a whole', () => {
  grow(PIECES, 200);
  grow(LISTS, 200);
});

test('so it has with definitions, which make links of what stands before them', () => {
  grow([...PIECES, ...DEFINITIONS, ...DEFINITIONS], 200);
});

test('finished blocks are not read again, and another text begins anew', () => {
  const blocks = new GrowingBlocks();
  const [first] = blocks.read('One\n\nTwo\nthree');
  assert.equal(blocks.read('One\n\nTwo\nthree four')[0], first);
  assert.deepEqual(blocks.read('Other\n\nTwo\nthree'), wholly('Other\n\nTwo\nthree'));
  const lex = Lexer.prototype.lex;
  /** @type {number[]} */
  const lengths = [];
  Lexer.prototype.lex = function (/** @type {string} */ text) {
    lengths.push(text.length);
    return lex.call(this, text);
  };
  let text = '';
  for (let paragraph = 0; paragraph < 100; paragraph += 1) {
    text += 'A paragraph of some words.\n\n';
    blocks.read(text);
  }
  Lexer.prototype.lex = lex;
  assert.ok(Math.max(...lengths) < 100, `${Math.max(...lengths)} of ${text.length} characters`);
});
