/**
 * One message of a chat: its text, what can be done with it, and which of its alternatives it is.
 * @import {ChatNode} from './tree.js'
 */

import { button, element } from '../dom.js';
import { counted } from '../words.js';
import { copyText, MarkdownText } from './markdown.js';

/**
 * @typedef {object} MessageActions
 * @property {(step: number) => void} onSwitch  Shows the alternative before or after.
 * @property {(content: string) => void} onEdit  For the user's messages.
 * @property {() => void} onRegenerate  For answers.
 */

/** @type {Partial<Record<import('./tree.js').AnswerState, string>>} */
const ASIDES = { stopped: '(stopped)', 'cut off': '(cut off: raise “Most tokens”, or the context is full)' };

export class MessageView {
  #node;
  #actions;
  #body = element('div', { class: 'bubble-body' });
  #text = new MarkdownText();
  #aside = element('p', { class: 'aside', hidden: true });
  #figures = element('small', { class: 'figures' });
  #bar = element('div', { class: 'message-bar' });
  #other;
  #frame = 0;

  /**
   * @param {ChatNode} node
   * @param {{index: number, count: number}} among  Its place among its alternatives, from 0.
   * @param {MessageActions} actions
   */
  constructor(node, among, actions) {
    this.#node = node;
    this.#actions = actions;
    const copy = button('Copy', () => copyText(node.content, copy), {
      class: 'quiet',
      'aria-label': `Copy ${node.role === 'user' ? 'your message' : 'this answer'}`,
    });
    this.#other =
      node.role === 'user'
        ? button('Edit', () => this.#edit(), { class: 'quiet', 'aria-label': 'Edit your message and branch' })
        : button('Again', () => actions.onRegenerate(), { class: 'quiet', 'aria-label': 'Answer again' });
    this.#bar.append(...switcher(among, actions), copy, this.#other, this.#figures);
    if (node.role === 'assistant') this.#body.append(this.#text.element, this.#aside);
    else this.#body.append(node.content);
    this.element = element('article', { class: `message ${node.role}` }, this.#body, this.#bar);
    this.element.setAttribute('aria-label', node.role === 'user' ? 'You' : 'Answer');
    this.show();
  }

  /** Shows what the answer has become, at once. */
  show() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (this.#node.role === 'user') return;
    const { content, state, error, figures } = this.#node;
    this.#text.show(content);
    this.element.toggleAttribute('data-empty', content === '');
    this.element.setAttribute('aria-busy', String(state === 'answering'));
    this.#aside.textContent = error ?? (state && ASIDES[state]) ?? '';
    this.#aside.hidden = this.#aside.textContent === '';
    this.#aside.classList.toggle('row-error', state === 'failed');
    this.#figures.textContent = figures ? figuresInWords(figures) : '';
  }

  /**
   * Shows it with the browser's next picture; text may come far more often.
   * @param {() => void} after
   */
  showSoon(after) {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.show();
      after();
    });
  }

  #edit() {
    const { content } = this.#node;
    const input = element('textarea', { value: content, rows: Math.min(8, content.split('\n').length + 1) });
    input.setAttribute('aria-label', 'Your message');
    const leave = () => {
      this.#body.replaceChildren(content);
      this.#bar.hidden = false;
      this.#other.focus();
    };
    const send = () => {
      if (input.value.trim()) this.#actions.onEdit(input.value.trim());
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') leave();
      else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.#bar.hidden = true;
    this.#body.replaceChildren(
      element(
        'div',
        { class: 'edit' },
        input,
        element('small', {}, 'The old message and its answers stay, as another branch.'),
        element('div', { class: 'actions' }, button('Cancel', leave), button('Send', send, { class: 'primary' })),
      ),
    );
    input.focus();
  }
}

/**
 * @param {{index: number, count: number}} among
 * @param {MessageActions} actions
 * @returns {HTMLElement[]}
 */
function switcher({ index, count }, { onSwitch }) {
  if (count === 1) return [];
  const before = button('‹', () => onSwitch(-1), { class: 'quiet', disabled: index === 0 });
  const after = button('›', () => onSwitch(1), { class: 'quiet', disabled: index === count - 1 });
  before.setAttribute('aria-label', 'Branch before');
  after.setAttribute('aria-label', 'Next branch');
  const group = { class: 'branches', role: 'group', 'aria-label': `Branch ${index + 1} of ${count}` };
  return [element('span', group, before, `${index + 1}/${count}`, after)];
}

/** @param {import('./tree.js').Figures} figures */
function figuresInWords({ prompt_tokens, cached_tokens, completion_tokens, first_token, finished }) {
  const parts = [counted(completion_tokens, 'token')];
  if (first_token !== null && finished > first_token && completion_tokens > 1) {
    parts.push(`${((completion_tokens - 1) / (finished - first_token)).toFixed(1)} tokens/s`);
    parts.push(`first after ${first_token.toFixed(1)} s`);
  }
  if (cached_tokens > 0) parts.push(`${cached_tokens} of ${prompt_tokens} prompt tokens from shared pages`);
  return parts.join(' · ');
}
