import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeText, detect, onlyColumn, parseTable, writeTable } from '../src/batch/table_text.js';

/**
 * The rows of a text as it is read without being told how.
 * @param {string} text
 * @param {string[]} [names]
 */
function read(text, names = []) {
  const reading = detect(text, names);
  return { ...reading, ...parseTable(text, reading) };
}

test('each format is known by itself', () => {
  const rows = [
    { name: 'Ada', year: '1815' },
    { name: 'Alan', year: '1912' },
  ];
  /** @type {[string, string][]} */
  const texts = [
    ['csv', 'name,year\nAda,1815\nAlan,1912'],
    ['csv', 'name;year\r\nAda;1815\r\nAlan;1912\r\n'],
    ['csv', '\ufeffname,year\n"Ada",1815\nAlan,"1912"'],
    ['tsv', 'name\tyear\nAda\t1815\nAlan\t1912'],
    ['jsonl', '{"name": "Ada", "year": 1815}\n\n{"name": "Alan", "year": 1912}'],
    ['json', '[{"name": "Ada", "year": 1815},\n {"name": "Alan", "year": 1912}]'],
  ];
  for (const [format, text] of texts) {
    const found = read(text);
    assert.equal(found.format, format, text);
    assert.deepEqual(found.rows, rows, text);
  }
});

test('sentences with commas are one row a line', () => {
  for (const text of [
    'Well, no.\nYes, of course.',
    'Paris, London\nRome, Oslo',
    'a\nb\n\n  c  ',
    'Is it red, or blue?\nIs it old, or new?',
  ]) {
    const { format, columns, rows } = read(text);
    assert.equal(format, 'list', text);
    assert.deepEqual(columns, ['text']);
    assert.deepEqual(
      rows.map((row) => row.text),
      text
        .split('\n')
        .map((line) => line.trim())
        .filter(Boolean),
    );
  }
});

test('the column of a list is called as the template calls it', () => {
  const list = /** @type {const} */ ({ format: 'list', header: false });
  assert.deepEqual(parseTable('a\nb', list, onlyColumn(['word'])).rows, [{ word: 'a' }, { word: 'b' }]);
  assert.deepEqual([onlyColumn([]), onlyColumn(['one', 'two'])], ['text', 'text']);
});

test('a first line with the columns that the template asks for makes it CSV, even of one column', () => {
  assert.deepEqual(read('word\n"two\nlines"\n"a ""b"""', ['word']).rows, [{ word: 'two\nlines' }, { word: 'a "b"' }]);
  assert.deepEqual(read('word\nyes, or no', ['word']).rows, [{ word: 'yes, or no' }]);
  assert.equal(read('word\nx').format, 'list');
});

test('cells without names get numbers for names', () => {
  const { format, header, columns, rows } = read('1\t2\n3\t4');
  assert.deepEqual([format, header], ['tsv', false]);
  assert.deepEqual(columns, ['column 1', 'column 2']);
  assert.deepEqual(rows[0], { 'column 1': '1', 'column 2': '2' });
});

test('columns of one name are told apart, and short lines are filled up', () => {
  const { columns, rows } = parseTable('__proto__,word,word\n1,2,3\n5\n', { format: 'csv', header: true });
  assert.deepEqual(columns, ['__proto__', 'word', 'word_2']);
  assert.deepEqual(Object.values(rows[1] ?? {}), ['5', '', '']);
});

test('members of JSON rows are their texts, and rows need not have the same', () => {
  const { columns, rows } = read('[{"a": null, "b": [1, "x"]}, {"c": true}, "plain"]');
  assert.deepEqual(columns, ['a', 'b', 'c', 'text']);
  assert.deepEqual(rows, [
    { a: '', b: '[1,"x"]', c: '', text: '' },
    { a: '', b: '', c: 'true', text: '' },
    { a: '', b: '', c: '', text: 'plain' },
  ]);
});

test('what is not in its format is refused in words that say where', () => {
  assert.throws(() => parseTable('{"a": 1}\nnot', { format: 'jsonl', header: false }), /^Error: Row 2 is not JSON/);
  assert.throws(() => parseTable('{"a": 1}', { format: 'json', header: false }), /not an array/);
  assert.throws(() => parseTable('[1', { format: 'json', header: false }), /not JSON/);
});

test('rows written as text read back as the same rows', () => {
  const plain = [{ text: 'a, b' }, { text: '"c"' }];
  const hard = [{ text: ' x\ny,"z"\t' }, { text: '' }];
  for (const format of /** @type {const} */ (['list', 'csv', 'tsv', 'json', 'jsonl'])) {
    for (const rows of [plain, hard]) {
      const written = writeTable({ columns: ['text'], rows }, { format, header: true });
      assert.deepEqual(parseTable(written.text, written.reading).rows, rows, format);
    }
  }
});

test('no text is no rows, in every format', () => {
  assert.deepEqual(read(' \n '), { format: 'list', header: false, columns: [], rows: [] });
  assert.deepEqual(parseTable('', { format: 'json', header: false }), { columns: [], rows: [] });
});

test('rows are as many as there are, and columns as many as can be looked at', () => {
  assert.equal(parseTable('a,b\n'.repeat(200_000), { format: 'csv', header: true }).rows.length, 199_999);
  const wide = 'a,'.repeat(600);
  const apart = Array.from({ length: 600 }, (_, index) => `{"c${index}": 1}`);
  /** @type {[string, import('../src/batch/table_text.js').Format][]} */
  const texts = [
    [`${wide}\n1`, 'csv'],
    [`1\n${wide.replaceAll(',', '\t')}`, 'tsv'],
    [apart.join('\n'), 'jsonl'],
    [`[${apart.join()}]`, 'json'],
  ];
  for (const [text, format] of texts) {
    assert.throws(() => parseTable(text, { format, header: true }), /^Error: These rows have 60[01] columns; /);
  }
});

test('a file is UTF-8 or UTF-16, or refused', () => {
  const text = 'name\tcity\nZoë\t東京';
  const little = Buffer.from(`\ufeff${text}`, 'utf16le');
  const big = Buffer.from(little).swap16();
  for (const bytes of [Buffer.from(text), Buffer.from(`\ufeff${text}`), little, big]) {
    assert.equal(decodeText(Uint8Array.from(bytes).buffer), text);
  }
  for (const bytes of [Buffer.from('Zoë', 'latin1'), little.subarray(0, -1), Buffer.from([0xff, 0xfe, 0, 0xd8])]) {
    assert.equal(decodeText(Uint8Array.from(bytes).buffer), null);
  }
  assert.equal(decodeText(new ArrayBuffer(0)), '');
});
