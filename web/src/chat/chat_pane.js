/**
 * One chat: the branch of its conversation that is shown, and a box to write in.
 * @import {Pageloom} from '../engine.js'
 * @import {Conversations} from './conversations.js'
 * @import {Conversation} from './tree.js'
 */

import { button, download, element } from '../dom.js';
import { Answers } from './answers.js';
import { ContextMeter } from './context_meter.js';
import { fileNameOf, toJson, toMarkdown } from './export.js';
import { MessageView } from './message_view.js';
import { SettingsForm } from './settings_form.js';
import { addNode, alternatives, nodeOf, ROOT, shownBranch, switchBranch, titleOf } from './tree.js';

const NO_MODEL = 'Load a model to chat';
/** How near to the end a reader has to be for the log to follow what comes, in pixels. */
const AT_END = 40;

export class ChatPane {
  /** @type {Pageloom | null} */
  #engine = null;
  #conversation;
  #store;
  #onChange;
  #answers;
  #settings;
  #meter;
  /** @type {Map<number, MessageView>} The messages that are shown, by their ids. */
  #views = new Map();
  #heading = element('h2');
  #log = element('div', { class: 'log', role: 'group', tabIndex: 0 });
  #empty = element('p', { class: 'empty' });
  #input = element('textarea', { rows: 2, placeholder: 'Write a message' });
  #problem = element('p', { class: 'problem', role: 'alert' });
  #announcement = element('p', { class: 'visually-hidden', role: 'status' });
  #send = button('Send', () => this.#submit(), { class: 'primary' });
  #stop = button('Stop', () => this.#answers.stop(this.#tip()));

  /**
   * @param {Conversation} conversation
   * @param {Conversations} store
   * @param {{onChange: () => void, onClose: () => void, onDelete: () => void}} host
   */
  constructor(conversation, store, { onChange, onClose, onDelete }) {
    this.#conversation = conversation;
    this.#store = store;
    this.#onChange = onChange;
    this.#answers = new Answers(
      conversation,
      (id) => this.#showText(id),
      (id) => this.#showEnd(id),
    );
    this.#settings = new SettingsForm(conversation.settings, () => this.#changed());
    this.#meter = new ContextMeter(conversation, () => this.#showState());
    this.#input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.#answers.stop(this.#tip());
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    this.#input.addEventListener('input', () => {
      this.#showState();
      this.#meter.measure(this.#engine, this.#tip(), this.#input.value);
    });
    this.element = element(
      'section',
      { class: 'chat' },
      element('header', {}, this.#heading, this.#menu(onClose, onDelete)),
      this.#settings.element,
      this.#log,
      element(
        'div',
        { class: 'compose' },
        this.#problem,
        this.#input,
        element('div', { class: 'actions' }, this.#meter.element, this.#stop, this.#send),
      ),
      this.#announcement,
    );
    this.#showBranch();
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** @param {Pageloom | null} engine */
  use(engine) {
    this.#engine = engine;
    this.#problem.textContent = '';
    this.#showState();
    this.#meter.measure(engine, this.#tip(), this.#input.value);
  }

  focus() {
    this.#input.focus();
  }

  stop() {
    this.#answers.stopAll();
  }

  /**
   * @param {() => void} onClose
   * @param {() => void} onDelete
   */
  #menu(onClose, onDelete) {
    const conversation = this.#conversation;
    const save = (/** @type {'md' | 'json'} */ ending, /** @type {string} */ type, /** @type {string} */ text) =>
      download(fileNameOf(conversation, ending), type, text);
    const quiet = { class: 'quiet' };
    return element(
      'div',
      { class: 'chat-menu' },
      button('Save .md', () => save('md', 'text/markdown', toMarkdown(conversation)), {
        ...quiet,
        'aria-label': 'Save .md: export as Markdown',
      }),
      button('Save .json', () => save('json', 'application/json', toJson(conversation)), {
        ...quiet,
        'aria-label': 'Save .json: export as JSON',
      }),
      button('Delete', onDelete, { ...quiet, 'aria-label': 'Delete this chat' }),
      button('Close', onClose, { ...quiet, 'aria-label': 'Close this chat' }),
    );
  }

  /** The last message of the branch that is shown. */
  #tip() {
    return shownBranch(this.#conversation).at(-1) ?? ROOT;
  }

  #submit() {
    const content = this.#input.value.trim();
    if (!content || !this.#ready() || this.#send.disabled) return;
    this.#input.value = '';
    this.#ask(this.#tip(), content);
    this.#input.focus();
  }

  /** The engine where a message can be answered now; shows why where not. */
  #ready() {
    this.#problem.textContent = this.#engine ? '' : NO_MODEL;
    return this.#settings.check() ? this.#engine : null;
  }

  /**
   * @param {number} parent
   * @param {string} content
   */
  #ask(parent, content) {
    const engine = this.#ready();
    if (engine) this.#answer(engine, addNode(this.#conversation, { parent, role: 'user', content }));
  }

  /** @param {number} message */
  #answerAgain(message) {
    const engine = this.#ready();
    if (engine) this.#answer(engine, message);
  }

  /**
   * @param {Pageloom} engine
   * @param {number} message
   */
  #answer(engine, message) {
    this.#answers.start(engine, message);
    this.#announcement.textContent = `${titleOf(this.#conversation)} is being answered`;
    this.#changed();
    this.#showBranch();
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** @param {number} id */
  #showText(id) {
    this.#store.saveSoon(this.#conversation);
    const log = this.#log;
    const { scrollTop } = log;
    const atEnd = log.scrollHeight - scrollTop - log.clientHeight < AT_END;
    this.#views.get(id)?.showSoon(() => {
      // The reader may have gone up since.
      if (atEnd && log.scrollTop >= scrollTop) log.scrollTop = log.scrollHeight;
    });
  }

  /** @param {number} id */
  #showEnd(id) {
    const log = this.#log;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < AT_END;
    const { content, error } = nodeOf(this.#conversation, id);
    this.#views.get(id)?.show();
    if (atEnd) log.scrollTop = log.scrollHeight;
    this.#announcement.textContent = error ?? `Answered: ${content}`;
    this.#changed();
    this.#showState();
    this.#meter.measure(this.#engine, this.#tip(), this.#input.value);
  }

  /** Shows the messages of the branch anew. The focus stays in the log where it was on one of them. */
  #showBranch() {
    const branch = shownBranch(this.#conversation);
    const views = branch.map((id) => /** @type {[number, MessageView]} */ ([id, this.#viewOf(id)]));
    this.#views = new Map(views);
    this.#empty.textContent = 'Enter sends, Shift + Enter begins a new line.';
    const hadFocus = this.#log.contains(document.activeElement);
    this.#log.replaceChildren(...(views.length ? views.map(([, view]) => view.element) : [this.#empty]));
    if (hadFocus) this.#log.focus();
    this.#showState();
    this.#meter.measure(this.#engine, this.#tip(), this.#input.value);
  }

  /** @param {number} id */
  #viewOf(id) {
    const node = nodeOf(this.#conversation, id);
    const among = alternatives(this.#conversation, id);
    return new MessageView(
      node,
      { index: among.indexOf(id), count: among.length },
      {
        onSwitch: (step) => {
          switchBranch(this.#conversation, id, step);
          this.#changed();
          this.#showBranch();
          this.#focusSwitcher(node.parent);
        },
        onEdit: (content) => this.#ask(node.parent, content),
        onRegenerate: () => this.#answerAgain(node.parent),
      },
    );
  }

  /**
   * Leaves the focus where the branch was switched, on what now stands there.
   * @param {number} parent
   */
  #focusSwitcher(parent) {
    const shown = this.#conversation.chosen[parent] ?? ROOT;
    const buttons = this.#views.get(shown)?.element.querySelectorAll('.branches button') ?? [];
    const enabled = /** @type {HTMLButtonElement[]} */ ([...buttons]).find(({ disabled }) => !disabled);
    enabled?.focus();
  }

  #changed() {
    this.#conversation.changed = new Date().toISOString();
    this.#store.saveSoon(this.#conversation);
    this.#showTitle();
    this.#onChange();
  }

  #showTitle() {
    const title = titleOf(this.#conversation);
    this.#heading.textContent = title;
    this.element.setAttribute('aria-label', `Chat ${this.#conversation.number}`);
    this.#log.setAttribute('aria-label', `Messages of ${title}`);
    this.#input.setAttribute('aria-label', `Message in Chat ${this.#conversation.number}`);
  }

  #showState() {
    const answering = this.#answers.isLive(this.#tip());
    const ready = this.#engine !== null && !this.#meter.isFull;
    this.#send.disabled = !ready || answering || this.#input.value.trim() === '';
    this.#stop.disabled = !answering;
    this.#input.placeholder = this.#engine ? 'Write a message' : NO_MODEL;
    this.#showTitle();
  }
}
