/**
 * Cases and shapes by parts of their names, in any order and case. Pure.
 */

/** @param {string} text */
function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

/**
 * Whether a name has all words of a text.
 * @param {string} text
 * @returns {(name: string) => boolean}
 */
export function hasWords(text) {
  const words = wordsOf(text);
  return (name) => words.every((word) => name.toLowerCase().includes(word));
}

/**
 * The pattern of names that have the words of a text in their order, as a shell and the worker write one; null where the
 * text has none.
 * @param {string} text
 */
export function patternOf(text) {
  const words = wordsOf(text).map((word) => Array.from(word, characterPattern).join(''));
  return words.length > 0 ? `*${words.join('*')}*` : null;
}

/** @param {string} character */
function characterPattern(character) {
  const upper = character.toUpperCase();
  if (upper !== character && upper.length === 1) return `[${character}${upper}]`;
  return '*?['.includes(character) ? `[${character}]` : character;
}
