/**
 * What is asked of each row, and what its answer comes to. Pure.
 * @import {RowResult} from '../engine.js'
 * @import {ErrorObject, JobFields, Message} from '../protocol.js'
 * @import {Values} from './template.js'
 */

import { errorObject } from '../errors.js';
import { fill } from './template.js';

/**
 * @typedef {'text' | 'choices' | 'json'} Mode
 *
 * @typedef {object} Settings
 * @property {string} template
 * @property {string} system
 * @property {Mode} mode
 * @property {string} labels  One a line.
 * @property {string} schema  A JSON Schema, as text.
 * @property {number} maxTokens
 * @property {number} temperature
 * @property {number} topP
 * @property {number | null} seed
 *
 * @typedef {'done' | 'cut off' | 'stopped' | 'failed'} EndState
 *
 * @typedef {object} Outcome
 * @property {EndState} state
 * @property {JobFields} job  What was asked.
 * @property {string} text
 * @property {ErrorObject | null} error
 * @property {Record<string, number> | null} probabilities  Of the labels, where there are some.
 * @property {unknown} value  The answer as JSON, where it was asked for and is whole; undefined otherwise.
 * @property {{prompt: number, cached: number, completion: number} | null} tokens
 * @property {number | null} seconds  From when it had pages to its end.
 */

/** @type {Settings} */
export const FIRST_SETTINGS = {
  template: '',
  system: '',
  mode: 'text',
  labels: '',
  schema: '',
  maxTokens: 64,
  temperature: 0,
  topP: 1,
  seed: null,
};

/** @type {Record<'stop' | 'length' | 'abort', EndState>} */
const STATE_OF = { stop: 'done', length: 'cut off', abort: 'stopped' };

/**
 * @param {string} labels
 * @returns {string[]} Each once.
 */
export function labelsOf(labels) {
  const lines = labels.split('\n').map((line) => line.trim());
  return [...new Set(lines.filter((line) => line !== ''))];
}

/**
 * What keeps rows from being asked so, in words, or ''.
 * @param {Settings} settings
 */
export function settingsProblem({ mode, labels, schema }) {
  if (mode === 'choices' && labelsOf(labels).length < 2) return 'Give at least two labels, one a line.';
  return mode === 'json' ? schemaProblem(schema) : '';
}

/** @param {string} schema */
export function schemaProblem(schema) {
  if (schema.trim() === '') return 'Add the fields that each answer is to have.';
  try {
    const value = JSON.parse(schema);
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return 'A JSON Schema is a JSON object.';
  } catch (error) {
    return `The schema is not JSON: ${/** @type {Error} */ (error).message}`;
  }
  return '';
}

/**
 * The job of a row, for settings without a problem.
 * @param {Settings} settings
 * @param {Values} values
 * @returns {JobFields}
 */
export function jobOf(settings, values) {
  /** @type {Message[]} */
  const messages = [{ role: 'user', content: fill(settings.template, values) }];
  if (settings.system.trim()) messages.unshift({ role: 'system', content: settings.system });
  if (settings.mode === 'choices') return { messages, choices: labelsOf(settings.labels) };
  return {
    messages,
    max_tokens: settings.maxTokens,
    temperature: settings.temperature,
    ...(settings.temperature > 0 && settings.topP < 1 && { top_p: settings.topP }),
    ...(settings.temperature > 0 && settings.seed !== null && { seed: settings.seed }),
    ...(settings.mode === 'json' && {
      response_format: { type: 'json_schema', json_schema: { name: 'row', schema: JSON.parse(settings.schema) } },
    }),
  };
}

/**
 * @param {JobFields} job
 * @param {RowResult} result
 * @returns {Outcome}
 */
export function outcomeOf(job, result) {
  const nothing = { job, text: '', error: null, probabilities: null, value: undefined, tokens: null, seconds: null };
  if ('error' in result) return { ...nothing, state: 'failed', error: result.error };
  const { usage, timings } = result;
  const state = STATE_OF[result.finish_reason];
  const value = job.response_format && state === 'done' ? parsed(result.text) : undefined;
  const isBroken = value instanceof SyntaxError;
  return {
    ...nothing,
    state: isBroken ? 'failed' : state,
    text: result.text,
    error: isBroken ? errorObject(new Error(`the answer is not JSON: ${value.message}`)) : null,
    probabilities: result.label_probabilities ?? null,
    value: isBroken ? undefined : value,
    tokens: { prompt: usage.prompt_tokens, cached: usage.cached_tokens, completion: usage.completion_tokens },
    seconds: timings ? timings.finished - (timings.admitted ?? timings.finished) : null,
  };
}

/**
 * @param {string} text
 * @returns {unknown} The value of JSON, or the `SyntaxError` of what is none.
 */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    return error;
  }
}

/**
 * The fields of JSON answers: those that the schema names, else none.
 * @param {Settings} settings
 * @returns {string[]}
 */
export function fieldsOf({ mode, schema }) {
  if (mode !== 'json' || schemaProblem(schema)) return [];
  const { properties } = JSON.parse(schema);
  return properties !== null && typeof properties === 'object' ? Object.keys(properties) : [];
}

/**
 * A field of an answer as a cell shows it; '' where there is none.
 * @param {Outcome | null} outcome
 * @param {string} field
 */
export function fieldOf(outcome, field) {
  const value = /** @type {any} */ (outcome?.value);
  if (value === null || typeof value !== 'object' || !Object.hasOwn(value, field)) return '';
  const member = value[field];
  if (member === null) return '';
  return typeof member === 'string' ? member : JSON.stringify(member);
}
