/**
 * The columns of the table: the rows' own, those of the answers, and figures.
 * @import {Settings} from './answer.js'
 * @import {BatchRow} from './batch_run.js'
 */

import { fieldOf, fieldsOf } from './answer.js';
import { stateOf } from './batch_run.js';
import { durationInWords } from './progress.js';

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {'index' | 'input' | 'output' | 'field' | 'bars' | 'state' | 'number'} kind
 * @property {number} rem  Its least width.
 * @property {number} grow  Its share of what is left.
 * @property {(row: BatchRow) => string} text
 * @property {(row: BatchRow) => string | number} by  What it is sorted by.
 */

/** Longer texts are cut for the table: a line or two of them show. */
const SHOWN = 400;
const TAIL = 120;
/** States in the order in which a sorted table has them. */
const STATES = ['failed', 'stopped', 'cut off', 'running', 'waiting', 'outdated', 'not run', 'done'];

/**
 * @param {string[]} inputs
 * @param {Settings} settings
 * @returns {Column[]}
 */
export function columnsOf(inputs, settings) {
  return [
    { title: '#', kind: 'index', rem: 2.5, grow: 0, text: (row) => `${row.index + 1}`, by: (row) => row.index },
    ...inputs.map((name) => textColumn(name, 'input', 8, 2, (row) => row.values[name] ?? '')),
    ...answerColumns(settings),
    {
      title: 'State',
      kind: 'state',
      rem: 5.25,
      grow: 0,
      text: stateOf,
      by: (row) => STATES.indexOf(stateOf(row)),
    },
    ...(settings.mode === 'choices' ? [] : [numberColumn('Tokens', tokensOf, (tokens) => `${tokens}`, 4.75)]),
    numberColumn('Time', ({ live, outcome }) => (live ? null : (outcome?.seconds ?? null)), durationInWords),
    ...(settings.mode === 'text' ? [numberColumn('Tokens/s', rateOf, (rate) => rate.toFixed(1), 5.25)] : []),
  ];
}

/**
 * @param {Settings} settings
 * @returns {Column[]}
 */
function answerColumns(settings) {
  if (settings.mode === 'choices') return [textColumn('Label', 'output', 7, 1, answerText), barsColumn()];
  const fields = fieldsOf(settings);
  if (fields.length === 0) return [textColumn('Answer', 'output', 12, 3, answerText)];
  return fields.map((name, index) =>
    // Until the fields are there, the first of them shows the text in which they come.
    textColumn(name, 'field', 6, 1, (row) => (index === 0 && !hasFields(row) ? answerText(row) : fieldText(row, name))),
  );
}

/** @param {BatchRow} row */
const hasFields = ({ live, outcome }) => !live && outcome?.value !== undefined;

/**
 * What an answer is so far: while it comes, its end; where it failed, why.
 * @param {BatchRow} row
 */
export function answerText({ live, outcome }) {
  if (live) return live.text.length > TAIL ? `… ${live.text.slice(-TAIL)}` : live.text;
  return outcome?.error?.message ?? outcome?.text ?? '';
}

/**
 * @param {BatchRow} row
 * @param {string} name
 */
function fieldText(row, name) {
  return hasFields(row) ? fieldOf(row.outcome, name) : '';
}

/**
 * @param {string} title
 * @param {'input' | 'output' | 'field'} kind
 * @param {number} rem
 * @param {number} grow
 * @param {(row: BatchRow) => string} whole
 * @returns {Column}
 */
function textColumn(title, kind, rem, grow, whole) {
  return { title, kind, rem, grow, text: (row) => whole(row).slice(0, SHOWN), by: whole };
}

/** @returns {Column} */
function barsColumn() {
  return {
    title: 'Probability',
    kind: 'bars',
    rem: 8,
    grow: 1,
    text: (row) => likeliest(row).toFixed(2),
    by: likeliest,
  };
}

/** @param {BatchRow} row */
function likeliest({ live, outcome }) {
  return live || !outcome?.probabilities ? 0 : Math.max(...Object.values(outcome.probabilities));
}

/**
 * @param {string} title
 * @param {(row: BatchRow) => number | null} value
 * @param {(value: number) => string} words
 * @param {number} [rem]
 * @returns {Column}
 */
function numberColumn(title, value, words, rem = 4.25) {
  /** @param {BatchRow} row */
  const text = (row) => {
    const number = value(row);
    return number === null ? '' : words(number);
  };
  return { title, kind: 'number', rem, grow: 0, text, by: (row) => value(row) ?? -1 };
}

/** @param {BatchRow} row */
function tokensOf({ live, outcome }) {
  return live ? live.tokens || null : (outcome?.tokens?.completion ?? null);
}

/** @param {BatchRow} row */
export function rateOf({ live, outcome }) {
  const tokens = outcome?.tokens?.completion;
  return live || !tokens || !outcome.seconds ? null : tokens / outcome.seconds;
}
