/**
 * The shape of JSON answers: a list of fields, and the JSON Schema that it makes, which can be edited itself.
 * @import {Field, FieldType} from './schema.js'
 */

import { button, element, field } from '../dom.js';
import { schemaProblem } from './answer.js';
import { FIELD_TYPES, fieldsOfSchema, schemaOf } from './schema.js';

export class SchemaForm {
  #onChange;
  #fields = element('ul', { class: 'plain fields', 'aria-label': 'Fields of each answer' });
  #byHand = element(
    'p',
    { class: 'told', hidden: true },
    'This schema says more than a list of fields: edit it below.',
  );
  #add = button('Add a field', () => this.#addField(), { class: 'quiet' });
  #schema = element('textarea', { rows: 10, spellcheck: false, class: 'code' });
  #problem = element('p', { class: 'problem', role: 'status' });

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#schema.addEventListener('input', () => {
      this.#showFields();
      onChange();
    });
    this.element = element(
      'div',
      { class: 'schema-form' },
      this.#fields,
      this.#byHand,
      this.#add,
      this.#problem,
      element('details', {}, element('summary', {}, 'As JSON Schema'), field('JSON Schema', this.#schema)),
    );
  }

  get schema() {
    return this.#schema.value;
  }

  /** @param {string} schema */
  show(schema) {
    this.#schema.value = schema;
    this.#showFields();
  }

  /** Says what is wrong with the schema. */
  check() {
    this.#problem.textContent = schemaProblem(this.schema);
  }

  #showFields() {
    const fields = fieldsOfSchema(this.schema);
    this.#byHand.hidden = fields !== null || schemaProblem(this.schema) !== '';
    this.#add.disabled = fields === null;
    this.#fields.replaceChildren(...(fields ?? []).map((one, index) => this.#line(one, index)));
  }

  #addField() {
    const fields = fieldsOfSchema(this.schema) ?? [];
    let number = fields.length + 1;
    while (fields.some(({ name }) => name === `field_${number}`)) number += 1;
    this.#change([...fields, { name: `field_${number}`, type: 'text', choices: [] }]);
    this.#showFields();
    const last = /** @type {HTMLInputElement | null} */ (this.#fields.querySelector('li:last-child input'));
    last?.select();
  }

  /**
   * @param {Field} one
   * @param {number} index
   */
  #line(one, index) {
    const name = element('input', { type: 'text', value: one.name, 'aria-label': `Name of field ${index + 1}` });
    const type = element(
      'select',
      { 'aria-label': `Type of ${one.name}` },
      ...Object.entries(FIELD_TYPES).map(([value, label]) => element('option', { value }, label)),
    );
    type.value = one.type;
    const choices = element('input', {
      type: 'text',
      value: one.choices.join(', '),
      placeholder: 'good, bad',
      hidden: one.type !== 'choice',
      'aria-label': `What ${one.name} may be, with commas between`,
    });
    const remove = button('✕', () => this.#edit(index, null), { class: 'quiet', 'aria-label': `Remove ${one.name}` });
    // Names and choices are taken once they are whole: half a name would be a field of its own.
    name.addEventListener('change', () => this.#edit(index, { ...one, name: name.value.trim() || one.name }));
    type.addEventListener('change', () => {
      const [first, second] = ['yes', 'no'];
      const given = type.value === 'choice' ? [first, second] : [];
      this.#edit(index, { ...one, type: /** @type {FieldType} */ (type.value), choices: given });
    });
    choices.addEventListener('change', () => {
      const given = choices.value.split(',').map((choice) => choice.trim());
      const whole = [...new Set(given.filter((choice) => choice !== ''))];
      this.#edit(index, { ...one, choices: whole.length > 0 ? whole : one.choices });
    });
    return element('li', {}, name, type, choices, remove);
  }

  /**
   * @param {number} index
   * @param {Field | null} changed  Null removes it.
   */
  #edit(index, changed) {
    const fields = fieldsOfSchema(this.schema) ?? [];
    const isTaken = fields.some(({ name }, other) => other !== index && name === changed?.name);
    if (!isTaken) this.#change(changed ? fields.with(index, changed) : fields.toSpliced(index, 1));
    this.#showFields();
  }

  /** @param {Field[]} fields */
  #change(fields) {
    this.#schema.value = fields.length > 0 ? schemaOf(fields) : '';
    this.#onChange();
  }
}
