/**
 * A conversation as a tree: a message that is edited, or answered again, begins another branch beside the old one.
 * A node's id is its index; `ROOT` stands before the first message. Pure: no page, no engine.
 * @import {Message} from '../protocol.js'
 */

export const ROOT = -1;

/**
 * @typedef {'answering' | 'whole' | 'cut off' | 'stopped' | 'failed'} AnswerState
 *
 * @typedef {object} Figures  Of an answer that has ended; tokens, and seconds since it was asked for.
 * @property {number} prompt_tokens
 * @property {number} cached_tokens  Prompt tokens whose pages were already computed.
 * @property {number} completion_tokens
 * @property {number | null} first_token
 * @property {number} finished
 *
 * @typedef {object} ChatNode
 * @property {number} parent
 * @property {'user' | 'assistant'} role
 * @property {string} content
 * @property {AnswerState} [state]  An answer has one.
 * @property {string} [error]
 * @property {Figures} [figures]
 *
 * @typedef {object} ChatSettings  An absent number leaves the choice to the engine.
 * @property {string} system
 * @property {number} [temperature]
 * @property {number} [top_p]
 * @property {number} [top_k]
 * @property {number} [min_p]
 * @property {number} [seed]
 * @property {number} [max_tokens]
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {number} number  Counts up; names a chat that has no message yet.
 * @property {boolean} open  Whether it has a pane.
 * @property {string} changed  ISO 8601.
 * @property {ChatSettings} settings
 * @property {ChatNode[]} nodes
 * @property {Record<number, number>} chosen  By parent, the child whose branch is shown.
 */

const TITLE_LENGTH = 40;

/**
 * @param {number} number
 * @param {ChatSettings} settings
 * @returns {Conversation}
 */
export function newConversation(number, settings) {
  const changed = new Date().toISOString();
  return { id: crypto.randomUUID(), number, open: true, changed, settings: { ...settings }, nodes: [], chosen: {} };
}

/**
 * Adds a node, and shows its branch.
 * @param {Conversation} conversation
 * @param {ChatNode} node
 * @returns {number}
 */
export function addNode(conversation, node) {
  const id = conversation.nodes.push(node) - 1;
  conversation.chosen[node.parent] = id;
  return id;
}

/**
 * @param {Conversation} conversation
 * @param {number} id
 * @returns {ChatNode}
 */
export function nodeOf(conversation, id) {
  const node = conversation.nodes[id];
  if (!node) throw new Error(`the conversation has no message ${id}`);
  return node;
}

/**
 * The ids of the branch that is shown, first message first.
 * @param {Conversation} conversation
 */
export function shownBranch({ chosen }) {
  const ids = [];
  for (let id = chosen[ROOT]; id !== undefined; id = chosen[id]) ids.push(id);
  return ids;
}

/**
 * The messages up to and with a node, as a request has them; a system message first where there is one.
 * @param {Conversation} conversation
 * @param {number} last  `ROOT` for none.
 * @returns {Message[]}
 */
export function messagesTo(conversation, last) {
  /** @type {Message[]} */
  const messages = [];
  for (let id = last; id !== ROOT; id = nodeOf(conversation, id).parent) {
    const { role, content } = nodeOf(conversation, id);
    messages.unshift({ role, content });
  }
  const { system } = conversation.settings;
  return system ? [{ role: 'system', content: system }, ...messages] : messages;
}

/**
 * The alternatives to a node, itself among them, oldest first.
 * @param {Conversation} conversation
 * @param {number} id
 */
export function alternatives({ nodes }, id) {
  const parent = nodes[id]?.parent;
  return [...nodes.keys()].filter((other) => nodes[other]?.parent === parent);
}

/**
 * Shows another alternative of a node: `step` 1 is the next, -1 the one before.
 * @param {Conversation} conversation
 * @param {number} id
 * @param {number} step
 */
export function switchBranch(conversation, id, step) {
  const among = alternatives(conversation, id);
  const next = among[among.indexOf(id) + step];
  if (next !== undefined) conversation.chosen[nodeOf(conversation, id).parent] = next;
}

/** @param {Conversation} conversation */
export function titleOf({ nodes, number, chosen }) {
  const first = nodes[chosen[ROOT] ?? ROOT]?.content.replaceAll(/\s+/g, ' ');
  if (!first) return `Chat ${number}`;
  return first.length > TITLE_LENGTH ? `${first.slice(0, TITLE_LENGTH - 1)}…` : first;
}

/**
 * Whether what the browser kept is a conversation whose branches all end: its storage can be damaged, or be written by
 * another version of the page.
 * @param {any} kept
 * @returns {kept is Conversation}
 */
export function isWhole(kept) {
  const { id, changed, settings, nodes, chosen } = kept ?? {};
  const isObject = (/** @type {unknown} */ value) => value !== null && typeof value === 'object';
  return (
    typeof id === 'string' &&
    typeof changed === 'string' &&
    isObject(settings) &&
    isObject(chosen) &&
    Array.isArray(nodes) &&
    nodes.every((node, index) => {
      const isBehind = Number.isInteger(node?.parent) && node.parent >= ROOT && node.parent < index;
      return isBehind && (node.role === 'user' || node.role === 'assistant') && typeof node.content === 'string';
    }) &&
    Object.entries(chosen).every(([parent, child]) => nodes[child]?.parent === Number(parent))
  );
}

/**
 * What another visit finds: an answer that was under way then is one that was stopped.
 * @param {Conversation} conversation
 * @returns {Conversation}
 */
export function restored(conversation) {
  const nodes = conversation.nodes.map((node) =>
    node.state === 'answering' ? { ...node, state: /** @type {AnswerState} */ ('stopped') } : node,
  );
  return { ...conversation, nodes };
}
