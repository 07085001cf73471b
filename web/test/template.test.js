import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fill, pieces, placeholders, templateProblem } from '../src/batch/template.js';

test('placeholders are named once, in order, and doubled braces are none', () => {
  assert.deepEqual(placeholders('{b} {{c}} { a } {b}'), ['b', 'a']);
  assert.deepEqual(placeholders('no braces, or { } or {\n}'), []);
});

test('filling replaces placeholders by the row and doubled braces by braces', () => {
  assert.equal(fill('{{"{word}"}} {other}', { word: '$&{x}' }), '{"$&{x}"} {other}');
});

test('the pieces of a filled template say which column each value is from', () => {
  assert.deepEqual(pieces('say { word }, {{x}}', { word: '' }), [
    { text: 'say ', column: null },
    { text: '', column: 'word' },
    { text: ', ', column: null },
    { text: '{', column: null },
    { text: 'x', column: null },
    { text: '}', column: null },
  ]);
});

test('no name of a column is special', () => {
  const values = Object.fromEntries([
    ['__proto__', '1'],
    ['constructor', '2'],
  ]);
  assert.equal(fill('{__proto__} {constructor}', values), '1 2');
  assert.equal(fill('{toString} {__proto__}', { word: 'x' }), '{toString} {__proto__}');
});

test('a template that does not fit the columns is told, with the placeholders at fault', () => {
  assert.match(templateProblem('{a} {c} {d}', ['a', 'b']), /^\{c\}, \{d\} are no columns/);
  assert.match(templateProblem('{a} {c}', ['a', 'b']), /^\{c\} is no column/);
  assert.match(templateProblem('the same for all', ['a']), /every row asks the same/);
  assert.equal(templateProblem('{a}', ['a', 'b']), '');
  assert.equal(templateProblem('{a}', []), '');
});
