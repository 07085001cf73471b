/**
 * The blocks of a Markdown text that grows. Pure.
 * @import {Token} from 'marked'
 */

import { Lexer } from 'marked';

/**
 * Reads what an answer's new tokens can change, and no more. A block is finished once a blank line and the whole line
 * after that follow it: what comes later cannot make that line a part of the block. Definitions of links are the
 * exception, since they change what stands before them; a text with one is read as a whole.
 */
export class GrowingBlocks {
  /** @type {Token[]} */
  #finished = [];
  /** What they are read from: the beginning of the text, with a line feed at the end of each line. */
  #source = '';
  #definesLinks = false;

  /**
   * All blocks; those that are finished are the same objects as before.
   * @param {string} text
   * @returns {Token[]}
   */
  read(text) {
    const source = text.replaceAll(/\r\n?/g, '\n');
    if (!source.startsWith(this.#source)) {
      this.#forget();
      this.#definesLinks = false;
    }
    const tokens = new Lexer({ gfm: true, breaks: true }).lex(source.slice(this.#source.length));
    const hasDefinition = Object.keys(tokens.links).length > 0;
    if (hasDefinition && !this.#definesLinks) {
      this.#definesLinks = true;
      this.#forget();
      return this.read(text);
    }
    const read = [...this.#finished, ...tokens.filter(isBlock)];
    if (!this.#definesLinks) this.#finish(tokens, source);
    return read;
  }

  #forget() {
    this.#finished = [];
    this.#source = '';
  }

  /**
   * @param {Token[]} tokens  Of what follows the finished blocks.
   * @param {string} source
   */
  #finish(tokens, source) {
    const lastLine = source.lastIndexOf('\n');
    let end = this.#source.length;
    let count = 0;
    for (const [index, { type, raw }] of tokens.entries()) {
      end += raw.length;
      if (type !== 'space' || end > lastLine) continue;
      count = index + 1;
      this.#source = source.slice(0, end);
    }
    this.#finished.push(...tokens.slice(0, count).filter(isBlock));
  }
}

/** @param {Token} token */
function isBlock({ type }) {
  return type !== 'space';
}
