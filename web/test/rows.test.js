import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fill, parseRows, placeholders } from '../src/batch/rows.js';

test('placeholders are named once, in order, and doubled braces are none', () => {
  assert.deepEqual(placeholders('{b} {{c}} { a } {b}'), ['b', 'a']);
  assert.deepEqual(placeholders('no braces, or { } or {\n}'), []);
});

test('filling replaces placeholders by the row and doubled braces by braces', () => {
  assert.equal(fill('{{"{word}"}} {other}', { word: '$&{x}' }), '{"$&{x}"} {other}');
});

test('one placeholder takes one row a line, commas and quotes as they stand', () => {
  const { columns, rows } = parseRows('a, b\r\n\n "c" \n', 'say {word}');
  assert.deepEqual(columns, ['word']);
  assert.deepEqual(rows, [{ word: 'a, b' }, { word: '"c"' }]);
});

test('a first line that names the placeholders makes it CSV, with quoted line breaks', () => {
  const { columns, rows } = parseRows('id, word\n1,"two\nlines"\n2,"a ""b"""\n', 'say {word}');
  assert.deepEqual(columns, ['id', 'word']);
  assert.deepEqual(rows, [
    { id: '1', word: 'two\nlines' },
    { id: '2', word: 'a "b"' },
  ]);
});

test('CSV that starts with a byte order mark is read by its names', () => {
  assert.deepEqual(parseRows('\ufeffword\nx', '{word}').rows, [{ word: 'x' }]);
});

test('no name of a column is special', () => {
  const { columns, rows } = parseRows(
    '__proto__,constructor,word,word\n1,2,3,4\n5\n',
    '{__proto__} {constructor} {word}',
  );
  assert.deepEqual(columns, ['__proto__', 'constructor', 'word', 'word_2']);
  assert.deepEqual(
    rows.map((row) => fill('{__proto__} {constructor} {word} {word_2}', row)),
    ['1 2 3 4', '5   '],
  );
  assert.equal(fill('{toString}', { word: 'x' }), '{toString}');
  assert.equal(fill('{__proto__}', parseRows('one', '{__proto__}').rows[0] ?? {}), 'one');
});

test('what does not fit is refused in words that say what to do', () => {
  assert.throws(() => parseRows('a', 'no place'), /Put a \{placeholder\}/);
  assert.throws(() => parseRows('a,b\n1,2', '{a} {c} {d}'), /lacks c, d/);
});

test('no text is no rows', () => {
  assert.deepEqual(parseRows(' \n ', '{word}').rows, []);
});
