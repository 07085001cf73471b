import assert from 'node:assert/strict';
import { test } from 'node:test';
import Papa from 'papaparse';
import { toCsv, toJson, toJsonLines } from '../src/batch/export.js';

/** @type {import('../src/batch/export.js').ResultRow} */
const ROW = {
  input: { word: 'a,"b"' },
  prompt: 'say a,"b"',
  output: 'one\ntwo',
  probabilities: null,
  parsed: undefined,
  state: 'done',
  error: null,
  prompt_tokens: 5,
  completion_tokens: 2,
  seconds: 1.25,
};
const FAILED = { ...ROW, input: { word: 'c' }, output: '', state: 'failed', error: 'too long', seconds: null };

test('an exported CSV reads back as the same cells', () => {
  const { data } = Papa.parse(toCsv(['word'], [ROW, FAILED]));
  assert.deepEqual(data, [
    ['word', 'output', 'state', 'error', 'prompt_tokens', 'completion_tokens', 'seconds'],
    ['a,"b"', 'one\ntwo', 'done', '', '5', '2', '1.25'],
    ['c', '', 'failed', 'too long', '5', '2', ''],
  ]);
});

test('a column of the input that is named like one of ours keeps its name', () => {
  const { data } = Papa.parse(toCsv(['output'], [{ ...ROW, input: { output: 'mine' } }]));
  assert.deepEqual(data[0].slice(0, 2), ['output', 'output_2']);
  assert.equal(data[1][0], 'mine');
});

test('no cell of an exported CSV is a formula, and numbers stay numbers', () => {
  const formulas = [
    '\n=1',
    '＝1+1',
    '＋1',
    '－1',
    '＠a',
    '=1+1',
    '+1+1',
    '-1+1',
    '@SUM(A1)',
    '\t=1',
    '\r=1',
    '=HYPERLINK("http://x","y")',
    "-2+3+cmd|' /C calc'!A0",
  ];
  const harmless = ['-5', '+5.25', '-0,5', 'a=b', ' =1', ''];
  for (const text of [...formulas, ...harmless]) {
    const row = { ...ROW, input: { [text]: text }, output: text };
    const { data } = Papa.parse(toCsv([text], [row]));
    const expected = formulas.includes(text) ? `'${text}` : text;
    assert.deepEqual([data[0][0], ...data[1].slice(0, 2)], [expected, expected, expected]);
  }
});

test('fields and probabilities are columns of a CSV, whichever rows have them', () => {
  const rows = [
    { ...ROW, parsed: { city: 'Oslo', tags: ['a'] }, probabilities: { good: 0.75, bad: 0.25 } },
    { ...ROW, parsed: { city: 'Rome', zip: null } },
    { ...ROW, parsed: ['no', 'object'] },
  ];
  const { data, meta } = Papa.parse(toCsv(['word', 'city'], rows), { header: true });
  assert.deepEqual(meta.fields?.slice(2, 8), ['output', 'city_2', 'tags', 'zip', 'p(good)', 'p(bad)']);
  const [first, second, third] = /** @type {Record<string, string>[]} */ (data);
  assert.deepEqual(
    [first?.city_2, first?.tags, first?.['p(good)'], second?.city_2, second?.zip, third?.city_2],
    ['Oslo', '["a"]', '0.75', 'Rome', '', ''],
  );
});

test('exported JSON and JSON Lines have input, prompt and outcome of each row', () => {
  const rows = [{ ...ROW, parsed: { a: 1 } }, FAILED];
  const whole = rows.map((row) => JSON.parse(JSON.stringify(row)));
  assert.deepEqual(JSON.parse(toJson(rows)), whole);
  assert.deepEqual(
    toJsonLines(rows)
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line)),
    whole,
  );
});
