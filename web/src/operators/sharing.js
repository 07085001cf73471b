import { button, download, element } from '../dom.js';

/** Results as JSON for others: export, copy, and a file of somebody else's to compare with. */
export class Sharing {
  #export;
  #copy;
  #picker = element('input', { type: 'file', accept: '.json', hidden: true });
  element;

  /**
   * @param {string} name  Of the file.
   * @param {() => string} toText
   * @param {(text: string, name: string) => void} onLoaded
   */
  constructor(name, toText, onLoaded) {
    this.#export = button('Export JSON', () => download(name, 'application/json', toText()));
    this.#copy = button('Copy JSON', () => navigator.clipboard.writeText(toText()));
    this.#picker.addEventListener('change', async () => {
      const [file] = this.#picker.files ?? [];
      if (file) onLoaded(await file.text(), file.name);
      this.#picker.value = '';
    });
    const compare = button('Compare with a file', () => this.#picker.click());
    this.element = element('div', { class: 'actions' }, this.#export, this.#copy, compare, this.#picker);
    this.enable(false);
  }

  /** @param {boolean} there  Whether there is something to share. */
  enable(there) {
    this.#export.disabled = !there;
    this.#copy.disabled = !there;
  }
}
