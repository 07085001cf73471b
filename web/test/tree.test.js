import assert from 'node:assert/strict';
import { test } from 'node:test';
import { contextState } from '../src/chat/context.js';
import { fileNameOf, toJson, toMarkdown } from '../src/chat/export.js';
import {
  addNode,
  alternatives,
  isWhole,
  messagesTo,
  newConversation,
  nodeOf,
  ROOT,
  restored,
  shownBranch,
  switchBranch,
  titleOf,
} from '../src/chat/tree.js';

/** Two answers to a first message, and a second message after the second answer. */
function conversation() {
  const made = newConversation(1, { system: 'Be brief.' });
  const first = addNode(made, { parent: ROOT, role: 'user', content: 'What is\n gravity?' });
  const old = addNode(made, { parent: first, role: 'assistant', content: 'A force.', state: 'whole' });
  const again = addNode(made, { parent: first, role: 'assistant', content: 'It pulls.', state: 'cut off' });
  const second = addNode(made, { parent: again, role: 'user', content: 'Why?' });
  return { made, first, old, again, second };
}

test('a new alternative is shown, and the old one can be shown again with what came after it', () => {
  const { made, first, old, again, second } = conversation();
  assert.deepEqual(shownBranch(made), [first, again, second]);
  assert.deepEqual(alternatives(made, again), [old, again]);
  switchBranch(made, again, -1);
  assert.deepEqual(shownBranch(made), [first, old]);
  switchBranch(made, old, -1);
  assert.deepEqual(shownBranch(made), [first, old]);
  switchBranch(made, old, 1);
  assert.deepEqual(shownBranch(made), [first, again, second]);
});

test('a first message can be edited too: conversations then begin differently', () => {
  const { made, first } = conversation();
  const edited = addNode(made, { parent: ROOT, role: 'user', content: 'What is light?' });
  assert.deepEqual(alternatives(made, first), [first, edited]);
  assert.deepEqual(shownBranch(made), [edited]);
  assert.equal(titleOf(made), 'What is light?');
});

test('a request has the messages of its own branch only, after the system prompt', () => {
  const { made, old, second } = conversation();
  const contents = (/** @type {number} */ id) => messagesTo(made, id).map(({ content }) => content);
  assert.deepEqual(contents(old), ['Be brief.', 'What is\n gravity?', 'A force.']);
  assert.deepEqual(contents(second), ['Be brief.', 'What is\n gravity?', 'It pulls.', 'Why?']);
  made.settings.system = '';
  assert.equal(messagesTo(made, old)[0]?.role, 'user');
});

test('an answer that was under way when the page closed is one that was stopped', () => {
  const { made, second } = conversation();
  const id = addNode(made, { parent: second, role: 'assistant', content: 'Because', state: 'answering' });
  assert.equal(nodeOf(restored(made), id).state, 'stopped');
  assert.equal(nodeOf(restored(made), id).content, 'Because');
});

test('the shown branch is exported as Markdown, and every branch as JSON', () => {
  const { made, first, again, second } = conversation();
  const markdown = toMarkdown(made);
  assert.equal(
    markdown,
    '# What is gravity?\n\n## System prompt\n\nBe brief.\n\n## You\n\nWhat is\n gravity?\n\n' +
      '## Answer (cut off)\n\nIt pulls.\n\n## You\n\nWhy?\n',
  );
  const exported = JSON.parse(toJson(made));
  assert.deepEqual(exported.shown, [first, again, second]);
  assert.equal(exported.messages.length, 4);
  assert.equal(fileNameOf(made, 'md'), 'what-is-gravity.md');
  assert.equal(fileNameOf(newConversation(3, { system: '' }), 'json'), 'chat-3.json');
});

test('the context is roomy, tight where the answer may not fit, and full where not one token does', () => {
  assert.deepEqual(contextState(100, 2048, 256), { level: 'roomy', used: '100 of 2,048 tokens', advice: '' });
  assert.match(contextState(1900, 2048, 256).advice, /room for 148 more tokens/);
  assert.match(contextState(2047, 2048, 256).advice, /room for one more token:/);
  assert.equal(contextState(2048, 2048, 256).level, 'full');
});

test('a damaged conversation is told from a whole one', () => {
  const { made } = conversation();
  assert.ok(isWhole(structuredClone(made)));
  assert.ok(isWhole(newConversation(1, { system: '' })));
  const [first] = made.nodes;
  const damages = [
    { id: 7 },
    { changed: undefined },
    { settings: null },
    { nodes: undefined },
    { nodes: [null] },
    { nodes: [{ ...first, parent: 0 }] },
    { nodes: [{ ...first, content: null }] },
    { nodes: [{ ...first, role: 'system' }] },
    { chosen: null },
    { chosen: { [ROOT]: 99 } },
    { chosen: { 0: 0 } },
  ];
  for (const damage of damages) assert.ok(!isWhole({ ...made, ...damage }), JSON.stringify(damage));
  for (const other of [null, undefined, 'chat', []]) assert.ok(!isWhole(other));
});
