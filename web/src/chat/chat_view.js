/**
 * The chat view: the conversations that are kept, and those that are open side by side, each live while the others are.
 * @import {Pageloom} from '../engine.js'
 * @import {Conversation} from './tree.js'
 */

import { button, element } from '../dom.js';
import { ChatPane } from './chat_pane.js';
import { Conversations } from './conversations.js';
import { FIRST_SETTINGS } from './settings_form.js';
import { newConversation, titleOf } from './tree.js';

export class ChatView {
  #root;
  /** @type {Pageloom | null} */
  #engine = null;
  /** @type {Conversation[]} */
  #all = [];
  /** @type {Map<Conversation, ChatPane>} Those that are open. */
  #panes = new Map();
  #notKept = element('div', { class: 'chat-notice', role: 'alert' });
  #store = new Conversations((message) => {
    this.#notKept.textContent = message;
  });
  #new = button('New chat', () => this.#begin().focus(), { class: 'primary' });
  #grid = element('div', { class: 'chats' });
  #list = element('ul', { class: 'plain' });
  #notice = element('div', { class: 'chat-notice', role: 'status' });

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    const aside = element(
      'aside',
      { class: 'chat-list', 'aria-label': 'Chats kept in this browser' },
      this.#new,
      this.#list,
    );
    const main = element('div', {}, this.#notKept, this.#notice, this.#grid);
    root.append(element('div', { class: 'chat-view' }, aside, main));
    root.inert = true; // a chat that begins before the kept ones have been read would be lost to them
    this.#restore();
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    for (const pane of this.#panes.values()) pane.use(engine);
  }

  async #restore() {
    this.#all = await this.#store.load();
    this.#root.inert = false;
    const open = this.#all.filter((conversation) => conversation.open).sort((a, b) => a.number - b.number);
    for (const conversation of open) this.#open(conversation);
    while (this.#all.length < 2) this.#begin();
    this.#showList();
  }

  /** A new chat, with the settings of the one that changed last. */
  #begin() {
    const number = 1 + Math.max(0, ...this.#all.map((other) => other.number));
    const [last] = [...this.#all].sort((a, b) => b.changed.localeCompare(a.changed));
    const conversation = newConversation(number, last?.settings ?? FIRST_SETTINGS);
    this.#all.push(conversation);
    return this.#open(conversation);
  }

  /** @param {Conversation} conversation */
  #open(conversation) {
    const pane = new ChatPane(conversation, this.#store, {
      onChange: () => this.#showList(),
      onClose: () => this.#close(conversation),
      onDelete: () => this.#delete(conversation),
    });
    this.#setOpen(conversation, true);
    this.#panes.set(conversation, pane);
    this.#grid.append(pane.element);
    pane.use(this.#engine);
    this.#showList();
    return pane;
  }

  /** @param {Conversation} conversation */
  #close(conversation) {
    const pane = this.#panes.get(conversation);
    const hadFocus = pane?.element.contains(document.activeElement);
    pane?.stop();
    pane?.element.remove();
    if (hadFocus) this.#new.focus();
    this.#panes.delete(conversation);
    this.#setOpen(conversation, false);
    if (conversation.nodes.length === 0) this.#all = this.#all.filter((other) => other !== conversation);
    this.#showList();
  }

  /** @param {Conversation} conversation */
  #delete(conversation) {
    this.#close(conversation);
    this.#all = this.#all.filter((other) => other !== conversation);
    this.#store.remove(conversation);
    this.#showList();
    const undo = () => {
      this.#notice.replaceChildren();
      this.#all.push(conversation);
      this.#store.bringBack(conversation);
      this.#open(conversation).focus();
    };
    const deleted = `“${titleOf(conversation)}” is deleted. `;
    this.#notice.replaceChildren(deleted, button('Undo', undo, { class: 'quiet' }));
  }

  /**
   * @param {Conversation} conversation
   * @param {boolean} open
   */
  #setOpen(conversation, open) {
    conversation.open = open;
    this.#store.save(conversation);
  }

  #showList() {
    const worthKeeping = this.#all.filter(({ nodes }) => nodes.length > 0);
    worthKeeping.sort((a, b) => b.changed.localeCompare(a.changed));
    this.#list.replaceChildren(
      ...worthKeeping.map((conversation) => {
        const open = this.#panes.get(conversation);
        const show = () => (open ?? this.#open(conversation)).focus();
        const day = new Date(conversation.changed).toLocaleDateString();
        const kept = { type: 'button', class: 'kept', onclick: show, 'aria-current': Boolean(open) };
        const words = [element('span', {}, titleOf(conversation)), element('small', {}, day)];
        return element('li', {}, element('button', kept, ...words));
      }),
    );
  }
}
