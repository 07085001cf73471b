/**
 * What a model takes of this GPU, and whether it fits, in plain words. Pure.
 * @import {CacheFit, Inspected, ModelFacts} from '../protocol.js'
 */

import { bytesInWords, counted, errorInWords } from '../words.js';

/** @typedef {{level: 'fits' | 'less' | 'not' | 'unknown', title: string, detail: string}} Verdict */

/**
 * @param {Inspected} inspected
 * @param {CacheFit | null} fit  With the settings of a load; null where there can be none.
 * @returns {Verdict}
 */
export function verdictOf({ name, facts, refusal }, fit) {
  if (refusal) {
    const { title, detail } = errorInWords(refusal);
    return { level: 'not', title: 'Does not fit', detail: `${title}: ${detail}` };
  }
  if (!facts) {
    const detail = `The server sends no parts of files, so ${name} has to be downloaded whole before its header can be read, and a download that is interrupted begins anew.`;
    return { level: 'unknown', title: 'Not known yet', detail };
  }
  if (!fit) return { level: 'not', title: 'Does not fit with these settings', detail: '' };
  if (fit.context_length >= facts.context_length) {
    return {
      level: 'fits',
      title: 'Fits the limits of this GPU',
      detail: `With its whole context of ${tokens(facts.context_length)}. How much memory the GPU has, no browser tells.`,
    };
  }
  const whole = bytesInWords(facts.context_length * fit.bytes_per_token);
  const detail = `The model was made for ${tokens(facts.context_length)}, whose KV cache takes ${whole}.`;
  return { level: 'less', title: `Fits with a context of ${tokens(fit.context_length)}`, detail };
}

/**
 * What can be told apart from settings, as names and values.
 * @param {Inspected} inspected
 * @returns {[string, string][]}
 */
export function factsInWords({ name, size, done, facts }) {
  const here = done === 0 ? '' : done < size ? `, ${bytesInWords(done)} of it here` : ', kept in this browser';
  /** @type {[string, string][]} */
  const file = [['File', `${name}, ${bytesInWords(size)}${here}`]];
  if (!facts) return file;
  const { num_bytes, largest, largest_bytes, largest_shards, binding_limit } = facts.weights;
  const parts = largest_shards === 1 ? 'in one buffer' : `in ${largest_shards} buffers`;
  return [
    ...file,
    ['Architecture', facts.architecture],
    ['Weights on the GPU', bytesInWords(num_bytes)],
    [
      'Largest matrix',
      `${largest}, ${bytesInWords(largest_bytes)} ${parts} (of up to ${bytesInWords(binding_limit)} here)`,
    ],
  ];
}

/**
 * @param {ModelFacts} facts
 * @param {CacheFit} fit
 */
export function memoryInWords({ weights }, { num_bytes, num_blocks, block_size, bytes_per_token, context_length }) {
  const room = num_blocks * block_size;
  const requests = Math.max(1, Math.floor(room / context_length));
  return (
    `A token takes ${bytesInWords(bytes_per_token)} of KV cache: room for ${tokens(room)} over all prompts, ` +
    `such as ${counted(requests, 'prompt')} of ${tokens(Math.min(context_length, room))}. ` +
    `With the weights ${bytesInWords(weights.num_bytes + num_bytes)} of GPU memory.`
  );
}

/**
 * Why no copy would be kept; empty where there is room.
 * @param {Inspected} inspected
 */
export function roomInWords({ name, size, done, has_room }) {
  if (has_room) return '';
  return (
    `This browser has no room for the ${bytesInWords(size - done)} that are to come of ${name}: it is not kept, and read ` +
    'from its source each time. Removing kept models makes room.'
  );
}

/** @param {number} count */
function tokens(count) {
  return `${count.toLocaleString('en')} tokens`;
}
