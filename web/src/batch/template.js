/** Templates: text with places for the columns of a row. Pure. */

/** `{name}` is a placeholder; `{{` and `}}` are the braces themselves. */
const PLACEHOLDER = /\{\{|\}\}|\{([^{}\n]+)\}/g;

/** @typedef {Record<string, string>} Values  A row's values by column. */

/**
 * A template as it is filled: texts as they stand, and values with the column that they come from. A placeholder without
 * a column stands as it is.
 * @param {string} template
 * @param {Values} values
 * @returns {{text: string, column: string | null}[]}
 */
export function pieces(template, values) {
  const found = [];
  let end = 0;
  for (const match of template.matchAll(PLACEHOLDER)) {
    found.push({ text: template.slice(end, match.index), column: null });
    end = match.index + match[0].length;
    const column = match[1]?.trim();
    if (column === undefined) found.push({ text: match[0].charAt(0), column: null });
    else if (Object.hasOwn(values, column)) found.push({ text: values[column] ?? '', column });
    else found.push({ text: match[0], column: null });
  }
  return [...found, { text: template.slice(end), column: null }].filter(({ text, column }) => text || column);
}

/**
 * @param {string} template
 * @param {Values} values
 * @returns {string}
 */
export function fill(template, values) {
  return pieces(template, values)
    .map(({ text }) => text)
    .join('');
}

/**
 * The names of a template's placeholders, each once, in the order in which they come.
 * @param {string} template
 * @returns {string[]}
 */
export function placeholders(template) {
  const names = Array.from(template.matchAll(PLACEHOLDER), ([, name]) => (name ?? '').trim());
  return [...new Set(names.filter((name) => name !== ''))];
}

/**
 * What keeps a template from being filled, in words, or ''.
 * @param {string} template
 * @param {string[]} columns
 * @returns {string}
 */
export function templateProblem(template, columns) {
  if (columns.length === 0) return '';
  const names = placeholders(template);
  const unknown = names.filter((name) => !columns.includes(name));
  if (unknown.length > 0) {
    const [what, them] = unknown.length === 1 ? ['is no column', 'it'] : ['are no columns', 'them'];
    return `${unknown.map((name) => `{${name}}`).join(', ')} ${what} of these rows. Put one of the columns in place of ${them}; write {{ and }} for braces as such.`;
  }
  if (names.length === 0) return 'Put a column where the text of each row goes: without one, every row asks the same.';
  return '';
}
