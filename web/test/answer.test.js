import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FIRST_SETTINGS, fieldOf, fieldsOf, jobOf, outcomeOf, settingsProblem } from '../src/batch/answer.js';
import { fieldsOfSchema, schemaOf } from '../src/batch/schema.js';

const USAGE = { prompt_tokens: 3, completion_tokens: 2, cached_tokens: 1 };
const RESULT = {
  index: 0,
  prompt_ids: [1],
  output_ids: [2],
  text: 'x',
  usage: USAGE,
  timings: { admitted: 0.5, first_token: 1, finished: 2 },
};
const SCHEMA = schemaOf([
  { name: 'city', type: 'text', choices: [] },
  { name: 'mood', type: 'choice', choices: ['good', 'bad'] },
  { name: 'tags', type: 'list', choices: [] },
]);

test('a row becomes a job with the system prompt first and the sampling that was set', () => {
  const settings = { ...FIRST_SETTINGS, template: 'say {word}', system: 'Be brief.', maxTokens: 5 };
  assert.deepEqual(jobOf(settings, { word: 'a' }), {
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'say a' },
    ],
    max_tokens: 5,
    temperature: 0,
  });
  const drawn = jobOf({ ...settings, temperature: 0.7, topP: 0.9, seed: 3 }, { word: 'a' });
  assert.deepEqual([drawn.temperature, drawn.top_p, drawn.seed], [0.7, 0.9, 3]);
});

test('labels become choices, each once, and no sampling goes with them', () => {
  const job = jobOf({ ...FIRST_SETTINGS, mode: 'choices', labels: ' good \nbad\n\ngood' }, {});
  assert.deepEqual(Object.keys(job), ['messages', 'choices']);
  assert.deepEqual(job.choices, ['good', 'bad']);
});

test('a schema becomes the response format, and its fields are those of the answer', () => {
  const settings = { ...FIRST_SETTINGS, mode: /** @type {const} */ ('json'), schema: SCHEMA };
  const job = jobOf(settings, {});
  assert.deepEqual(job.response_format, {
    type: 'json_schema',
    json_schema: { name: 'row', schema: JSON.parse(SCHEMA) },
  });
  assert.deepEqual(fieldsOf(settings), ['city', 'mood', 'tags']);
  const text = '{"city": "Oslo", "mood": "good", "tags": ["a", "b"]}';
  const outcome = outcomeOf(job, { ...RESULT, text, finish_reason: 'stop' });
  assert.deepEqual(
    ['city', 'tags', 'toString'].map((name) => fieldOf(outcome, name)),
    ['Oslo', '["a","b"]', ''],
  );
});

test('JSON that was cut off is no value', () => {
  const job = jobOf({ ...FIRST_SETTINGS, mode: 'json', schema: SCHEMA }, {});
  const outcome = outcomeOf(job, { ...RESULT, text: '{"city": "Os', finish_reason: 'length' });
  assert.deepEqual([outcome.state, outcome.value, fieldOf(outcome, 'city')], ['cut off', undefined, '']);
});

test('an answer that is not the JSON it was to be fails its row', () => {
  const job = jobOf({ ...FIRST_SETTINGS, mode: 'json', schema: SCHEMA }, {});
  const outcome = outcomeOf(job, { ...RESULT, text: 'Oslo', finish_reason: 'stop' });
  assert.deepEqual([outcome.state, outcome.value, outcome.text], ['failed', undefined, 'Oslo']);
  assert.match(outcome.error?.message ?? '', /not JSON/);
});

test('what came of a row has its figures', () => {
  const job = jobOf(FIRST_SETTINGS, {});
  const label_probabilities = { good: 0.9, bad: 0.1 };
  const outcome = outcomeOf(job, { ...RESULT, finish_reason: 'stop', label_probabilities });
  assert.deepEqual(outcome.tokens, { prompt: 3, cached: 1, completion: 2 });
  assert.deepEqual([outcome.seconds, outcome.probabilities], [1.5, label_probabilities]);
});

test('settings that cannot be asked are told', () => {
  assert.equal(settingsProblem(FIRST_SETTINGS), '');
  assert.match(settingsProblem({ ...FIRST_SETTINGS, mode: 'choices', labels: 'one' }), /two labels/);
  for (const schema of ['', '{', '[]', 'null']) {
    assert.notEqual(settingsProblem({ ...FIRST_SETTINGS, mode: 'json', schema }), '', schema);
  }
});

test('a schema of fields reads back as these fields, and another one as none', () => {
  assert.deepEqual(fieldsOfSchema(SCHEMA), [
    { name: 'city', type: 'text', choices: [] },
    { name: 'mood', type: 'choice', choices: ['good', 'bad'] },
    { name: 'tags', type: 'list', choices: [] },
  ]);
  assert.deepEqual(fieldsOfSchema(''), []);
  for (const other of ['{', '{}', '{"type": "object", "properties": {"a": {"type": "object"}}}', 'null', '5']) {
    assert.equal(fieldsOfSchema(other), null, other);
  }
});
