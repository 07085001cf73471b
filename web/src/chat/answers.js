/**
 * The answers of one conversation that are under way: several branches may be answered at once, and share their pages.
 * @import {Pageloom} from '../engine.js'
 * @import {JobResult} from '../protocol.js'
 * @import {ChatNode, Conversation} from './tree.js'
 */

import { errorInWords } from '../words.js';
import { addNode, alternatives, messagesTo, nodeOf, titleOf } from './tree.js';

/** @type {Record<JobResult['finish_reason'], import('./tree.js').AnswerState>} */
const STATE_OF = { stop: 'whole', length: 'cut off', abort: 'stopped' };

export class Answers {
  #conversation;
  #onText;
  #onEnd;
  /** @type {Map<number, AbortController>} By the answer's id. */
  #live = new Map();

  /**
   * @param {Conversation} conversation
   * @param {(id: number) => void} onText
   * @param {(id: number) => void} onEnd
   */
  constructor(conversation, onText, onEnd) {
    this.#conversation = conversation;
    this.#onText = onText;
    this.#onEnd = onEnd;
  }

  /** @param {number} id */
  isLive(id) {
    return this.#live.has(id);
  }

  /** @param {number} id */
  stop(id) {
    this.#live.get(id)?.abort();
  }

  stopAll() {
    for (const controller of this.#live.values()) controller.abort();
  }

  /**
   * Begins the answer to a message, in a branch of its own, and returns its id.
   * @param {Pageloom} engine
   * @param {number} message
   */
  start(engine, message) {
    const conversation = this.#conversation;
    const { system: _system, ...sampling } = conversation.settings;
    const messages = messagesTo(conversation, message);
    const id = addNode(conversation, { parent: message, role: 'assistant', content: '', state: 'answering' });
    const stop = new AbortController();
    this.#live.set(id, stop);
    this.#follow(engine, id, { messages, label: this.#label(id), signal: stop.signal, ...sampling });
    return id;
  }

  /**
   * @param {Pageloom} engine
   * @param {number} id
   * @param {import('../engine.js').Row} row
   */
  async #follow(engine, id, row) {
    const node = nodeOf(this.#conversation, id);
    const [result] = await engine.batch([row], {
      onText: (_row, text) => {
        node.content += text;
        if (text) this.#onText(id);
      },
    });
    if (result && 'error' in result) fail(node, result.error);
    else if (result) finish(node, result);
    this.#live.delete(id);
    this.#onEnd(id);
  }

  /**
   * What the picture of the pages calls it.
   * @param {number} id
   */
  #label(id) {
    const among = alternatives(this.#conversation, id);
    const title = titleOf(this.#conversation);
    return among.length > 1 ? `${title} (branch ${among.indexOf(id) + 1})` : title;
  }
}

/**
 * @param {ChatNode} node
 * @param {import('../protocol.js').ErrorObject} error
 */
function fail(node, error) {
  const { title, advice, detail } = errorInWords(error);
  node.state = 'failed';
  node.error = `${title}: ${detail}. ${advice}`.trim();
}

/**
 * @param {ChatNode} node
 * @param {JobResult} result
 */
function finish(node, { text, finish_reason, usage, timings }) {
  node.content = text;
  node.state = STATE_OF[finish_reason];
  node.figures = { ...usage, ...timings };
}
