/** JSON Schemas of flat answers, as a list of fields and back. Pure. */

/**
 * @typedef {'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'list'} FieldType
 * @typedef {{name: string, type: FieldType, choices: string[]}} Field  `choices` are those of the type "choice".
 */

/** @type {Record<FieldType, string>} */
export const FIELD_TYPES = {
  text: 'text',
  number: 'number',
  integer: 'whole number',
  boolean: 'yes or no',
  choice: 'one of',
  list: 'list of texts',
};

/** @type {Record<Exclude<FieldType, 'choice'>, object>} */
const SCHEMAS = {
  text: { type: 'string' },
  number: { type: 'number' },
  integer: { type: 'integer' },
  boolean: { type: 'boolean' },
  list: { type: 'array', items: { type: 'string' } },
};

/**
 * An object with exactly these fields.
 * @param {Field[]} fields
 * @returns {string}
 */
export function schemaOf(fields) {
  const properties = fields.map(({ name, type, choices }) => [
    name,
    type === 'choice' ? { enum: choices } : SCHEMAS[type],
  ]);
  const schema = {
    type: 'object',
    properties: Object.fromEntries(properties),
    required: fields.map(({ name }) => name),
    additionalProperties: false,
  };
  return JSON.stringify(schema, null, 2);
}

/**
 * The fields of a schema, or null where it says more than a list of fields can.
 * @param {string} schema
 * @returns {Field[] | null}
 */
export function fieldsOfSchema(schema) {
  if (schema.trim() === '') return [];
  let value;
  try {
    value = JSON.parse(schema);
  } catch {
    return null;
  }
  const fields = Object.entries(value?.properties ?? {}).map(([name, property]) => fieldOf(name, property));
  const whole = fields.filter((found) => found !== null);
  return JSON.stringify(value) === JSON.stringify(JSON.parse(schemaOf(whole))) ? whole : null;
}

/**
 * @param {string} name
 * @param {any} property
 * @returns {Field | null}
 */
function fieldOf(name, property) {
  if (Array.isArray(property?.enum)) return { name, type: 'choice', choices: property.enum.map(String) };
  for (const [type, schema] of Object.entries(SCHEMAS)) {
    if (JSON.stringify(schema) === JSON.stringify(property)) {
      return { name, type: /** @type {FieldType} */ (type), choices: [] };
    }
  }
  return null;
}
