/**
 * Whether what the browser kept of a batch can be shown: its storage can be damaged, or be written by another version of
 * the page. Pure.
 * @import {Head, KeptRow} from './saved_run.js'
 */

import { counted } from '../words.js';
import { FORMATS } from './table_text.js';

const MODES = ['text', 'choices', 'json'];
const END_STATES = ['done', 'cut off', 'stopped', 'failed'];

/**
 * @typedef {object} KeptBatch
 * @property {Head | null} head
 * @property {KeptRow[]} rows
 * @property {string} problem  What is damaged, in words; '' where nothing is.
 */

/**
 * What is whole of a batch. A row without a whole answer keeps its values.
 * @param {unknown} head
 * @param {unknown[]} rows
 * @returns {KeptBatch}
 */
export function wholeOf(head, rows) {
  if (!isHead(head)) {
    return { head: null, rows: [], problem: 'The batch that this browser kept could not be read and is left out.' };
  }
  const isRow = (/** @type {any} */ row) => head.columns.every((column) => typeof row?.values?.[column] === 'string');
  const found = rows.slice(0, head.count);
  const whole = /** @type {KeptRow[]} */ (found.filter(isRow));
  const kept = whole.map((row) => (row.outcome === null || isOutcome(row.outcome) ? row : { ...row, outcome: null }));
  const rowsLost = head.count - kept.length;
  const answersLost = kept.filter((row, index) => row !== whole[index]).length;
  const lost = [rowsLost && counted(rowsLost, 'row'), answersLost && counted(answersLost, 'answer')].filter(Boolean);
  const problem = `Of the batch that this browser kept, this could not be read and is left out: ${lost.join(', ')}.`;
  return { head, rows: kept, problem: lost.length > 0 ? problem : '' };
}

/**
 * @param {any} kept
 * @returns {kept is Head}
 */
function isHead(kept) {
  const { settings, reading, columns, count, model } = kept ?? {};
  return (
    isSettings(settings) &&
    Object.hasOwn(FORMATS, reading?.format) &&
    typeof reading.header === 'boolean' &&
    Array.isArray(columns) &&
    areAll('string', columns) &&
    Number.isInteger(count) &&
    count >= 0 &&
    isModel(model)
  );
}

/** @param {any} settings */
function isSettings(settings) {
  const { template, system, labels, schema, mode, maxTokens, temperature, topP, seed } = settings ?? {};
  return (
    areAll('string', [template, system, labels, schema]) &&
    areAll('number', [maxTokens, temperature, topP, seed ?? 0]) &&
    MODES.includes(mode)
  );
}

/** @param {any} model */
function isModel(model) {
  if (typeof model?.name !== 'string') return false;
  return model.choice === null || model.choice === 'built-in' || typeof model.choice?.stored === 'string';
}

/**
 * @param {any} outcome
 * @returns {boolean}
 */
function isOutcome(outcome) {
  const { state, job, text, error, probabilities, tokens, seconds } = outcome ?? {};
  return (
    END_STATES.includes(state) &&
    isObject(job) &&
    typeof text === 'string' &&
    (error === null || typeof error?.message === 'string') &&
    (probabilities === null || (isObject(probabilities) && areAll('number', Object.values(probabilities)))) &&
    (tokens === null || areAll('number', [tokens?.prompt, tokens?.cached, tokens?.completion])) &&
    (seconds === null || typeof seconds === 'number')
  );
}

/** @param {unknown} value */
function isObject(value) {
  return value !== null && typeof value === 'object';
}

/**
 * @param {'string' | 'number'} type
 * @param {unknown[]} values
 */
function areAll(type, values) {
  return values.every((value) => typeof value === type);
}
