/** The template, with the rows' columns to put into it, and the system prompt. */

import { button, element, field } from '../dom.js';
import { placeholders, templateProblem } from './template.js';

export class TemplateForm {
  #onChange;
  #template = element('textarea', { rows: 4, placeholder: 'What is asked of each row' });
  #system = element('textarea', { rows: 2 });
  #columns = element('div', { class: 'columns', role: 'group', 'aria-label': 'Insert a column' });
  #problem = element('p', { class: 'problem', id: 'template-problem', role: 'status' });
  #more = element('details', {}, element('summary', {}, 'System prompt'), this.#system);

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
    for (const input of [this.#template, this.#system]) input.addEventListener('input', onChange);
    this.#system.setAttribute('aria-label', 'System prompt');
    const group = field('Template', this.#template);
    this.#template.setAttribute('aria-describedby', this.#problem.id);
    this.element = element('div', { class: 'template-form' }, group, this.#columns, this.#problem, this.#more);
  }

  get template() {
    return this.#template.value;
  }

  get system() {
    return this.#system.value;
  }

  /** @param {{template: string, system: string}} settings */
  show({ template, system }) {
    this.#template.value = template;
    this.#system.value = system;
    if (system) this.#more.open = true;
  }

  /**
   * Offers the columns, and says what of the template does not fit them.
   * @param {string[]} columns
   * @returns {string} The problem; '' where there is none.
   */
  check(columns) {
    const used = placeholders(this.template);
    this.#offer(columns, used);
    const problem = templateProblem(this.template, columns);
    if (this.#problem.textContent !== problem) this.#problem.textContent = problem;
    this.#template.setAttribute('aria-invalid', String(problem !== ''));
    return problem;
  }

  /**
   * @param {string[]} columns
   * @param {string[]} used
   */
  #offer(columns, used) {
    const same = [...this.#columns.children].map((child) => child.textContent).join() === columns.map(braced).join();
    if (!same) {
      this.#columns.replaceChildren(
        ...columns.map((column) =>
          button(braced(column), () => this.#insert(braced(column)), {
            class: 'column',
            'aria-label': `Insert ${braced(column)}`,
          }),
        ),
      );
    }
    for (const [index, column] of columns.entries()) {
      this.#columns.children[index]?.classList.toggle('used', used.includes(column));
    }
  }

  /** @param {string} text */
  #insert(text) {
    const { selectionStart, selectionEnd } = this.#template;
    this.#template.setRangeText(text, selectionStart, selectionEnd, 'end');
    this.#template.focus();
    this.#onChange();
  }
}

/** @param {string} column */
const braced = (column) => `{${column}}`;
