import assert from 'node:assert/strict';
import { test } from 'node:test';
import Papa from 'papaparse';
import { toCsv, toJson } from '../src/batch/export.js';

/** @type {[import('../src/batch/export.js').ResultRow, import('../src/batch/export.js').ResultRow]} */
const ROWS = [
  { input: { word: 'a,"b"' }, prompt: 'say a,"b"', state: 'done', text: 'one\ntwo', error: '', completionTokens: 2 },
  { input: { word: 'c' }, prompt: 'say c', state: 'failed', text: '', error: 'too long', completionTokens: null },
];

test('an exported CSV reads back as the same cells', () => {
  const { data } = Papa.parse(toCsv(['word'], ROWS));
  assert.deepEqual(data, [
    ['word', 'output', 'state', 'error', 'completion_tokens'],
    ['a,"b"', 'one\ntwo', 'done', '', '2'],
    ['c', '', 'failed', 'too long', ''],
  ]);
});

test('a column of the input that is named like one of ours keeps its name', () => {
  const { data } = Papa.parse(toCsv(['output'], [{ ...ROWS[1], input: { output: 'mine' } }]));
  assert.deepEqual(data[0].slice(0, 2), ['output', 'output_2']);
  assert.equal(data[1][0], 'mine');
});

test('no cell of an exported CSV is a formula, and numbers stay numbers', () => {
  const formulas = [
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
    const row = { ...ROWS[0], input: { word: text }, text };
    const { data } = Papa.parse(toCsv(['word'], [row]));
    const expected = formulas.includes(text) ? `'${text}` : text;
    assert.deepEqual(data[1].slice(0, 2), [expected, expected]);
  }
});

test('exported JSON has input, prompt and outcome of each row', () => {
  assert.deepEqual(JSON.parse(toJson(ROWS))[1], {
    input: { word: 'c' },
    prompt: 'say c',
    output: '',
    state: 'failed',
    error: 'too long',
    completion_tokens: null,
  });
});
