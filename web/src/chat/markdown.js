/**
 * Markdown as elements. Text from a model is never parsed as HTML: each token becomes an element made here, so there is
 * nothing to sanitise. HTML in it is shown as text, and images as links, so that nothing is fetched from anywhere.
 * @import {Token, Tokens} from 'marked'
 */

import { button, element } from '../dom.js';
import { GrowingBlocks } from './growing_blocks.js';

const SAFE_LINK = /^(?:https?:|mailto:)/i;
const ENTITY = /&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z]\w{1,31});/gi;
/** A chat's own heading is the page's second level. */
const FIRST_HEADING = 3;

/** A text that grows: of what is shown only the blocks that changed are made anew. */
export class MarkdownText {
  element = element('div', { class: 'markdown' });
  #blocks = new GrowingBlocks();
  /** @type {Token[]} */
  #shown = [];

  /** @param {string} text */
  show(text) {
    const blocks = this.#blocks.read(text);
    let same = 0;
    while (same < blocks.length && isSame(this.#shown[same], blocks[same])) same += 1;
    while (this.element.children.length > same) this.element.lastElementChild?.remove();
    this.element.append(...blocks.slice(same).map(blockElement));
    this.#shown = blocks;
  }
}

/**
 * Finished blocks are the same objects; others are read anew each time.
 * @param {Token | undefined} shown
 * @param {Token | undefined} block
 */
function isSame(shown, block) {
  return shown === block || JSON.stringify(shown) === JSON.stringify(block);
}

/**
 * @param {Token} token
 * @returns {HTMLElement}
 */
function blockElement(token) {
  switch (token.type) {
    case 'heading': {
      const level = Math.min(6, token.depth + FIRST_HEADING - 1);
      return element(/** @type {'h3'} */ (`h${level}`), {}, ...inline(token.tokens));
    }
    case 'code':
      return codeBlock(/** @type {Tokens.Code} */ (token));
    case 'blockquote':
      return element('blockquote', {}, ...blocks(token.tokens));
    case 'list':
      return list(/** @type {Tokens.List} */ (token));
    case 'table':
      return table(/** @type {Tokens.Table} */ (token));
    case 'hr':
      return element('hr');
    case 'paragraph':
    case 'text':
      return element('p', {}, ...inline(token.tokens ?? [token]));
    default:
      return element('p', { class: 'source' }, token.raw.trimEnd());
  }
}

/** @param {Token[] | undefined} tokens */
function blocks(tokens = []) {
  return tokens.filter(({ type }) => type !== 'space').map(blockElement);
}

/** @param {Tokens.Code} code */
function codeBlock({ text, lang }) {
  const copy = button('Copy', () => copyText(text, copy), { class: 'quiet', 'aria-label': 'Copy this code' });
  return element(
    'div',
    { class: 'code-block' },
    element('div', { class: 'code-bar' }, element('span', {}, lang?.split(/\s/)[0] ?? ''), copy),
    element('pre', { tabIndex: 0 }, element('code', {}, text)),
  );
}

/** @param {Tokens.List} token */
function list({ ordered, start, items }) {
  const lines = items.map((item) =>
    element('li', {}, ...(item.loose ? blocks(item.tokens) : item.tokens.flatMap(tightItem))),
  );
  return ordered ? element('ol', { start: start === '' ? 1 : start }, ...lines) : element('ul', {}, ...lines);
}

/**
 * The text of an item stands without a paragraph of its own, where no item has more than one.
 * @param {Token} token
 * @returns {(Node | string)[]}
 */
function tightItem(token) {
  if (token.type === 'text') return inline(token.tokens ?? [token]);
  if (token.type === 'checkbox') return inline([token]);
  return token.type === 'space' ? [] : [blockElement(token)];
}

/** @param {Tokens.Table} token */
function table({ header, rows }) {
  /**
   * @param {'th' | 'td'} tag
   * @param {Tokens.TableCell} cell
   */
  const cellElement = (tag, { tokens, align }) => {
    const cell = element(tag, {}, ...inline(tokens));
    if (align) cell.style.textAlign = align;
    return cell;
  };
  const head = element('thead', {}, element('tr', {}, ...header.map((cell) => cellElement('th', cell))));
  const body = rows.map((row) => element('tr', {}, ...row.map((cell) => cellElement('td', cell))));
  const frame = { class: 'table-frame', role: 'region', 'aria-label': 'Table', tabIndex: 0 };
  return element('div', frame, element('table', {}, head, element('tbody', {}, ...body)));
}

/**
 * @param {Token[] | undefined} tokens
 * @returns {(Node | string)[]}
 */
function inline(tokens = []) {
  return tokens.map((token) => {
    switch (token.type) {
      case 'strong':
      case 'em':
      case 'del':
        return element(/** @type {'em'} */ (token.type), {}, ...inline(token.tokens));
      case 'codespan':
        return element('code', {}, token.text);
      case 'br':
        return element('br');
      case 'link':
        return link(token.href, inline(token.tokens), token.raw);
      case 'image':
        return link(token.href, [`Image: ${token.text || token.href}`], token.raw);
      case 'checkbox':
        return token.checked ? '☑ ' : '☐ ';
      case 'escape':
        return token.text;
      case 'text':
        return token.tokens ? element('span', {}, ...inline(token.tokens)) : decoded(token.text);
      default:
        return token.raw;
    }
  });
}

/**
 * @param {string} href
 * @param {(Node | string)[]} children
 * @param {string} source  Stands for a link that leads elsewhere than to the web or a mail address.
 */
function link(href, children, source) {
  if (!SAFE_LINK.test(href)) return source;
  return element('a', { href, target: '_blank', rel: 'noopener noreferrer' }, ...children);
}

/**
 * Character references as what they stand for; the lexer leaves them as they are.
 * @param {string} text
 */
function decoded(text) {
  return text.replace(
    ENTITY,
    (entity) => new DOMParser().parseFromString(entity, 'text/html').body.textContent || entity,
  );
}

/**
 * @param {string} text
 * @param {HTMLButtonElement} pressed  Says how it went, for a moment.
 */
export async function copyText(text, pressed) {
  const label = 'Copy';
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = 'Copied';
  } catch {
    pressed.textContent = 'Not allowed';
  }
  setTimeout(() => {
    pressed.textContent = label;
  }, 1500);
}
