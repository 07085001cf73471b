import { element } from './dom.js';
import { errorObject } from './errors.js';
import { errorInWords } from './words.js';

/**
 * What went wrong, and what to do about it.
 * @param {unknown} error
 */
export function failureBox(error) {
  const { title, advice, detail } = errorInWords(errorObject(error));
  return element(
    'div',
    { class: 'failure', role: 'alert' },
    element('h2', {}, title),
    element('p', {}, advice),
    element('p', { class: 'detail' }, detail),
  );
}
