/**
 * OpenAI's request and response shapes over jobs. Pure: no worker, no clock.
 * @import {JobDelta, JobFields, JobResult, JobUsage, Message, ResponseFormat, TokenLogprob} from './protocol.js'
 */

import { invalidArgument } from './errors.js';

/**
 * @typedef {object} SamplingBody  OpenAI's sampling fields, and ours by the same names as in a job.
 * @property {string} [model]
 * @property {boolean} [stream]
 * @property {{include_usage?: boolean}} [stream_options]
 * @property {1} [n]
 * @property {number} [max_tokens]
 * @property {number} [temperature]
 * @property {number} [top_p]
 * @property {number} [top_k]
 * @property {number} [min_p]
 * @property {number} [seed]
 * @property {string | string[]} [stop]
 * @property {number} [presence_penalty]
 * @property {number} [frequency_penalty]
 * @property {number} [repetition_penalty]
 * @property {Record<string, number>} [logit_bias]
 * @property {string[]} [choices]  The answer is the most probable of these; with label_probabilities.
 * @property {ResponseFormat} [response_format]
 */

/**
 * @typedef {SamplingBody & {
 *   messages: Message[], max_completion_tokens?: number, logprobs?: boolean, top_logprobs?: number,
 * }} ChatBody
 * @typedef {SamplingBody & {prompt: string | number[], logprobs?: number}} CompletionBody
 *
 * @typedef {{prompt_tokens: number, completion_tokens: number, total_tokens: number,
 *   prompt_tokens_details: {cached_tokens: number}}} Usage
 * @typedef {{id: string, created: number, model: string}} Envelope
 * @typedef {JobResult['finish_reason']} FinishReason
 * @typedef {{content: TokenLogprob[]}} ChatLogprobs
 * @typedef {{label_probabilities?: Record<string, number>, label_logprobs?: Record<string, number>}} LabelFields
 *   Of `choices`; in a stream, with the finish_reason.
 *
 * @typedef {Envelope & {object: 'chat.completion', usage: Usage, choices: [LabelFields & {index: 0,
 *   finish_reason: FinishReason, message: {role: 'assistant', content: string}, logprobs: ChatLogprobs | null,
 *   }]}} ChatCompletion
 * @typedef {Envelope & {object: 'chat.completion.chunk', usage?: Usage | null, choices: (LabelFields & {index: 0,
 *   delta: {role?: 'assistant', content?: string}, finish_reason: FinishReason | null,
 *   logprobs: ChatLogprobs | null})[]}} ChatCompletionChunk
 *
 * @typedef {{tokens: string[], token_logprobs: number[], top_logprobs: Record<string, number>[]}} TextLogprobs
 * @typedef {Envelope & {object: 'text_completion', usage?: Usage | null, choices: (LabelFields & {index: 0,
 *   text: string, finish_reason: FinishReason | null, logprobs: TextLogprobs | null})[]}} TextCompletion
 */

/** What a job has no word for, because it belongs to the envelope. */
const ENVELOPE_FIELDS = ['model', 'stream', 'stream_options', 'n'];

/**
 * @param {object} body
 * @returns {Record<string, unknown>}
 */
function withoutEnvelope(body) {
  const fields = Object.entries(body).filter(([name]) => !ENVELOPE_FIELDS.includes(name));
  return Object.fromEntries(fields);
}

/** @param {SamplingBody} body */
function checkEnvelope(body) {
  if (typeof body !== 'object' || body === null) throw invalidArgument('the request is an object');
  if (body.n !== undefined && body.n !== 1) {
    throw invalidArgument(`n is 1, not ${body.n}: make several requests, which run together`, 'n');
  }
}

/**
 * @param {ChatBody} body
 * @returns {JobFields}
 */
export function chatJob(body) {
  checkEnvelope(body);
  const { logprobs, top_logprobs, max_completion_tokens, ...fields } = withoutEnvelope(body);
  if (!Array.isArray(fields.messages)) throw invalidArgument('messages is an array', 'messages');
  if (top_logprobs !== undefined && !logprobs) {
    throw invalidArgument('top_logprobs goes with logprobs: true', 'top_logprobs');
  }
  if (logprobs) fields.logprobs = top_logprobs ?? 0;
  if (max_completion_tokens !== undefined) fields.max_tokens = max_completion_tokens;
  return fields;
}

/**
 * @param {CompletionBody} body
 * @returns {JobFields}
 */
export function completionJob(body) {
  checkEnvelope(body);
  const { prompt, ...fields } = withoutEnvelope(body);
  if (typeof prompt === 'string') return { ...fields, prompt, raw: true };
  if (Array.isArray(prompt)) return { ...fields, prompt_ids: prompt };
  throw invalidArgument('prompt is a string or an array of token ids', 'prompt');
}

/**
 * @param {JobUsage} usage
 * @returns {Usage}
 */
function openaiUsage(usage) {
  return {
    prompt_tokens: usage.prompt_tokens,
    completion_tokens: usage.completion_tokens,
    total_tokens: usage.prompt_tokens + usage.completion_tokens,
    prompt_tokens_details: { cached_tokens: usage.cached_tokens },
  };
}

/**
 * @param {TokenLogprob[] | undefined} logprobs
 * @returns {ChatLogprobs | null}
 */
function chatLogprobs(logprobs) {
  return logprobs ? { content: logprobs } : null;
}

/**
 * @param {TokenLogprob[] | undefined} logprobs
 * @returns {TextLogprobs | null}
 */
function textLogprobs(logprobs) {
  if (!logprobs) return null;
  return {
    tokens: logprobs.map((entry) => entry.token),
    token_logprobs: logprobs.map((entry) => entry.logprob),
    top_logprobs: logprobs.map((entry) =>
      Object.fromEntries(entry.top_logprobs.map((other) => [other.token, other.logprob])),
    ),
  };
}

/**
 * @param {JobResult} result
 * @returns {LabelFields}
 */
function labelFields({ label_probabilities, label_logprobs }) {
  return label_probabilities ? { label_probabilities, label_logprobs } : {};
}

/**
 * The shapes of one of the two endpoints, for a response and for a stream's chunks.
 * @template Whole, Chunk
 * @typedef {object} Shapes
 * @property {string} idPrefix
 * @property {(envelope: Envelope, result: JobResult) => Whole} whole
 * @property {(envelope: Envelope) => Chunk[]} opening  Chunks before the first text.
 * @property {(envelope: Envelope, delta: JobDelta) => Chunk} delta
 * @property {(envelope: Envelope, result: JobResult) => Chunk} closing
 * @property {(envelope: Envelope, result: JobResult) => Chunk} usage
 */

/**
 * @template {{choices: object[]}} Chunk
 * @param {Chunk} chunk
 * @param {JobResult} result
 * @returns {Chunk}
 */
function withLabels(chunk, result) {
  return { ...chunk, choices: chunk.choices.map((choice) => ({ ...choice, ...labelFields(result) })) };
}

/** @type {Shapes<ChatCompletion, ChatCompletionChunk>} */
export const chatShapes = {
  idPrefix: 'chatcmpl',
  whole: (envelope, result) => ({
    ...envelope,
    object: 'chat.completion',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: result.text },
        finish_reason: result.finish_reason,
        logprobs: chatLogprobs(result.logprobs),
        ...labelFields(result),
      },
    ],
    usage: openaiUsage(result.usage),
  }),
  opening: (envelope) => [chatChunk(envelope, { role: 'assistant', content: '' }, null)],
  delta: (envelope, { text, logprob }) => chatChunk(envelope, { content: text }, null, logprob && [logprob]),
  closing: (envelope, result) => withLabels(chatChunk(envelope, {}, result.finish_reason), result),
  usage: (envelope, { usage }) => ({
    ...envelope,
    object: 'chat.completion.chunk',
    choices: [],
    usage: openaiUsage(usage),
  }),
};

/** @type {Shapes<TextCompletion, TextCompletion>} */
export const textShapes = {
  idPrefix: 'cmpl',
  whole: (envelope, result) => ({
    ...withLabels(textChunk(envelope, result.text, result.finish_reason, result.logprobs), result),
    usage: openaiUsage(result.usage),
  }),
  opening: () => [],
  delta: (envelope, { text, logprob }) => textChunk(envelope, text, null, logprob && [logprob]),
  closing: (envelope, result) => withLabels(textChunk(envelope, '', result.finish_reason), result),
  usage: (envelope, { usage }) => ({ ...envelope, object: 'text_completion', choices: [], usage: openaiUsage(usage) }),
};

/**
 * @param {Envelope} envelope
 * @param {{role?: 'assistant', content?: string}} delta
 * @param {FinishReason | null} finish_reason
 * @param {TokenLogprob[]} [logprobs]
 * @returns {ChatCompletionChunk}
 */
function chatChunk(envelope, delta, finish_reason, logprobs) {
  return {
    ...envelope,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason, logprobs: chatLogprobs(logprobs) }],
  };
}

/**
 * @param {Envelope} envelope
 * @param {string} text
 * @param {FinishReason | null} finish_reason
 * @param {TokenLogprob[]} [logprobs]
 * @returns {TextCompletion}
 */
function textChunk(envelope, text, finish_reason, logprobs) {
  return {
    ...envelope,
    object: 'text_completion',
    choices: [{ index: 0, text, finish_reason, logprobs: textLogprobs(logprobs) }],
  };
}
