import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chatJob, chatShapes, completionJob, textShapes } from '../src/openai.js';

const MESSAGES = [{ role: 'user', content: 'Hi' }];
const ENVELOPE = { id: 'x-1', created: 5, model: 'm' };
const LOGPROB = { token: 'a', bytes: [97], logprob: -0.5, top_logprobs: [{ token: 'b', bytes: [98], logprob: -1 }] };
/** @type {import('../src/protocol.js').JobResult} */
const RESULT = {
  prompt_ids: [1, 2],
  output_ids: [3],
  text: 'a',
  finish_reason: 'stop',
  usage: { prompt_tokens: 2, completion_tokens: 1, cached_tokens: 0 },
  timings: { admitted: 0, first_token: 0.5, finished: 1 },
  logprobs: [LOGPROB],
};
const USAGE = {
  prompt_tokens: 2,
  completion_tokens: 1,
  total_tokens: 3,
  prompt_tokens_details: { cached_tokens: 0 },
};

test('a chat request becomes a job without the envelope’s fields', () => {
  const body = { messages: MESSAGES, model: 'any', stream: true, temperature: 0.5, max_completion_tokens: 7 };
  assert.deepEqual(chatJob(body), { messages: MESSAGES, temperature: 0.5, max_tokens: 7 });
});

test('logprobs of a chat become a count of alternatives', () => {
  assert.equal(chatJob({ messages: MESSAGES, logprobs: true, top_logprobs: 3 }).logprobs, 3);
  assert.equal(chatJob({ messages: MESSAGES, logprobs: true }).logprobs, 0);
  assert.equal(chatJob({ messages: MESSAGES, logprobs: false }).logprobs, undefined);
  assert.throws(() => chatJob({ messages: MESSAGES, top_logprobs: 3 }), {
    code: 'invalid_argument',
    param: 'top_logprobs',
  });
});

test('a completion’s prompt is raw text or token ids', () => {
  assert.deepEqual(completionJob({ prompt: 'Once', logprobs: 2 }), { prompt: 'Once', raw: true, logprobs: 2 });
  assert.deepEqual(completionJob({ prompt: [1, 2] }), { prompt_ids: [1, 2] });
});

test('what cannot be a request is refused with the field at fault', () => {
  const chat = /** @type {(body: any) => object} */ (chatJob);
  const completion = /** @type {(body: any) => object} */ (completionJob);
  assert.throws(() => chat({}), { param: 'messages', status: 400, type: 'invalid_request_error' });
  assert.throws(() => chat(null), { code: 'invalid_argument' });
  assert.throws(() => chat({ messages: MESSAGES, n: 2 }), { param: 'n' });
  assert.throws(() => completion({ prompt: 5 }), { param: 'prompt' });
});

test('labels of a classification stand beside the choice, in a stream with its end', () => {
  const labels = { label_probabilities: { a: 0.75, b: 0.25 }, label_logprobs: { a: -1, b: -2.1 } };
  const result = { ...RESULT, ...labels };
  for (const shapes of [chatShapes, textShapes]) {
    for (const { choices } of [shapes.whole(ENVELOPE, result), shapes.closing(ENVELOPE, result)]) {
      assert.deepEqual(choices[0].label_probabilities, labels.label_probabilities);
      assert.deepEqual(choices[0].label_logprobs, labels.label_logprobs);
    }
    assert.ok(!('label_probabilities' in shapes.whole(ENVELOPE, RESULT).choices[0]));
  }
});

test('a chat completion has OpenAI’s shape', () => {
  assert.deepEqual(chatShapes.whole(ENVELOPE, RESULT), {
    ...ENVELOPE,
    object: 'chat.completion',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'a' },
        finish_reason: 'stop',
        logprobs: { content: [LOGPROB] },
      },
    ],
    usage: USAGE,
  });
});

test('the chunks of a chat open with the role and close with the reason', () => {
  const [opening] = chatShapes.opening(ENVELOPE);
  assert.deepEqual(opening?.choices[0]?.delta, { role: 'assistant', content: '' });
  const delta = chatShapes.delta(ENVELOPE, { text: 'a', token_id: 3, logprob: LOGPROB });
  assert.equal(delta.object, 'chat.completion.chunk');
  assert.deepEqual(delta.choices[0], {
    index: 0,
    delta: { content: 'a' },
    finish_reason: null,
    logprobs: { content: [LOGPROB] },
  });
  assert.equal(chatShapes.closing(ENVELOPE, RESULT).choices[0]?.finish_reason, 'stop');
  assert.deepEqual(chatShapes.usage(ENVELOPE, RESULT).choices, []);
});

test('a text completion has OpenAI’s shape, logprobs as parallel arrays', () => {
  const whole = textShapes.whole(ENVELOPE, RESULT);
  assert.equal(whole.object, 'text_completion');
  assert.deepEqual(whole.usage, USAGE);
  assert.deepEqual(whole.choices, [
    {
      index: 0,
      text: 'a',
      finish_reason: 'stop',
      logprobs: { tokens: ['a'], token_logprobs: [-0.5], top_logprobs: [{ b: -1 }] },
    },
  ]);
});
