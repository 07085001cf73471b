/**
 * What the page has to say that belongs to no view, in a corner over them, so that nothing moves.
 */

import { button, element } from '../dom.js';

/**
 * @typedef {object} Notice
 * @property {string} title
 * @property {string} [text]
 * @property {[label: string, onClick: () => void][]} [actions]
 * @property {boolean} [urgent]  Nothing goes on without the user; told at once, and not put away.
 */

export class Notices {
  #root;
  /** @type {Map<string, HTMLElement>} */
  #shown = new Map();

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
  }

  /**
   * Shows a notice, in place of the one of this name.
   * @param {string} name
   * @param {Notice} notice
   */
  show(name, { title, text = '', actions = [], urgent = false }) {
    const buttons = actions.map(([label, onClick]) => button(label, onClick));
    if (!urgent)
      buttons.push(button('Dismiss', () => this.hide(name), { class: 'quiet', 'aria-label': `Dismiss: ${title}` }));
    const box = element(
      'div',
      { class: 'notice', role: urgent ? 'alert' : 'status', 'data-notice': name },
      element('p', {}, element('strong', {}, title)),
      element('p', {}, text),
      element('div', { class: 'actions' }, ...buttons),
    );
    const before = this.#shown.get(name);
    if (before) before.replaceWith(box);
    else this.#root.append(box);
    this.#shown.set(name, box);
  }

  /** @param {string} name */
  hide(name) {
    this.#shown.get(name)?.remove();
    this.#shown.delete(name);
  }
}
