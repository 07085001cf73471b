import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { addNode, newConversation, ROOT } from '../src/chat/tree.js';

/** @import {Conversation} from '../src/chat/tree.js' */

/** @type {Set<string>} The locks that tabs hold; as in a browser, one tab each. */
const held = new Set();
const locks = {
  request: async (/** @type {string} */ name, /** @type {object} */ _options, /** @type {() => unknown} */ hold) => {
    if (held.has(name)) throw new DOMException('another tab holds it', 'TimeoutError');
    held.add(name);
    return hold();
  },
};
Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
Object.assign(globalThis, { window: globalThis });

const { saved } = await import('../src/saved.js');
const { Conversations } = await import('../src/chat/conversations.js');

/** @type {Map<string, Conversation>} What the browser keeps. */
const disk = new Map();

beforeEach(() => {
  held.clear();
  disk.clear();
  mock.timers.enable({ apis: ['setTimeout'] });
  mock.method(saved, 'all', async () => [...disk.values()]);
  mock.method(saved, 'put', async (/** @type {string} */ _store, /** @type {Conversation} */ chat) => {
    disk.set(chat.id, structuredClone(chat));
  });
  mock.method(saved, 'remove', async (/** @type {string} */ _store, /** @type {string} */ id) => {
    disk.delete(id);
  });
});

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

/** The chats of a tab, and what that tab says. */
function tab() {
  /** @type {string[]} */
  const told = [];
  return { chats: new Conversations((message) => told.push(message)), told };
}

/** @param {string} content */
function chat(content) {
  const made = newConversation(1, { system: '' });
  addNode(made, { parent: ROOT, role: 'user', content });
  return made;
}

/** Lets the writes that are due, and those begun, come to their end. */
async function written() {
  mock.timers.tick(1000);
  await new Promise((resolve) => setImmediate(resolve));
}

test('a chat that changes is written soon, once, as it is then', async () => {
  const { chats } = tab();
  const made = chat('Hi');
  chats.saveSoon(made);
  addNode(made, { parent: 0, role: 'assistant', content: 'Hello', state: 'whole' });
  chats.saveSoon(made);
  assert.equal(disk.size, 0);
  await written();
  assert.deepEqual(disk.get(made.id), made);
});

test('a chat that was removed does not come back when its answer ends', async () => {
  const { chats } = tab();
  const made = chat('Hi');
  await chats.save(made);
  await chats.remove(made);
  chats.saveSoon(made);
  await written();
  assert.equal(disk.size, 0);
});

test('a chat that is brought back is kept, and so is what comes of it later', async () => {
  const { chats } = tab();
  const made = chat('Hi');
  await chats.remove(made);
  await chats.bringBack(made);
  assert.equal(disk.size, 1);
  addNode(made, { parent: 0, role: 'assistant', content: 'Hello', state: 'whole' });
  chats.saveSoon(made);
  await written();
  assert.deepEqual(disk.get(made.id), made);
});

test('a second tab says that another keeps the chats, and neither reads, writes nor removes any', async () => {
  const [first, second] = [tab(), tab()];
  const made = chat('Hi');
  await first.chats.save(made);
  assert.deepEqual(await second.chats.load(), []);
  assert.equal(second.told.length, 1);
  assert.match(second.told[0] ?? '', /Another tab of this page keeps the chats/);
  await second.chats.save({ ...made, number: 2 });
  await second.chats.save(chat('Another'));
  await second.chats.remove(made);
  assert.deepEqual([...disk.values()], [made]);
  assert.deepEqual(await first.chats.load(), [made]);
  assert.deepEqual(first.told, []);
});
