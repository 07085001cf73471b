/** The little help with the DOM that the views share. */

import { desktop } from './desktop.js';

/**
 * An element. `props` are its properties; `class`, `aria-*`, `data-*`, `for` and `role` are set as attributes, and
 * functions named `on…` are listeners.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} [props]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (/^(class|for|role|aria-.*|data-.*)$/.test(name)) node.setAttribute(name, String(value));
    else Object.assign(node, { [name]: value });
  }
  node.append(...children);
  return node;
}

/**
 * The element of the page with this id; the page's own markup has it.
 * @param {string} id
 */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no #${id}`);
  return node;
}

let lastId = 0;

/**
 * A labelled control, with a hint that describes it.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [hint]
 */
export function field(label, control, hint) {
  lastId += 1;
  control.id = `control-${lastId}`;
  const words = element('label', { class: 'field-label', for: control.id }, label);
  const group = element('div', { class: 'field' }, words, control);
  if (hint) {
    control.setAttribute('aria-describedby', `hint-${lastId}`);
    group.append(element('small', { id: `hint-${lastId}` }, hint));
  }
  return group;
}

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {Record<string, unknown>} [props]
 */
export function button(label, onClick, props = {}) {
  return element('button', { type: 'button', onclick: onClick, ...props }, label);
}

/**
 * Lets files be dropped on an element.
 * @param {HTMLElement} target
 * @param {(file: File) => void} onFile
 */
export function acceptDrop(target, onFile) {
  /** @param {boolean} over */
  const mark = (over) => target.classList.toggle('drop-over', over);
  target.addEventListener('dragover', (event) => {
    event.preventDefault();
    mark(true);
  });
  target.addEventListener('dragleave', () => mark(false));
  target.addEventListener('drop', (event) => {
    event.preventDefault();
    mark(false);
    const file = event.dataTransfer?.files[0];
    if (file) onFile(file);
  });
}

/**
 * Hands a text to the user as a file.
 * @param {string} name
 * @param {string} type
 * @param {string} text
 */
export function download(name, type, text) {
  if (desktop) {
    desktop.save(name, text);
    return;
  }
  const url = URL.createObjectURL(new Blob([text], { type }));
  element('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
