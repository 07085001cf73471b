/** How much of the context a conversation takes, in words. Pure. */

/**
 * @typedef {object} ContextState
 * @property {'roomy' | 'tight' | 'full'} level
 * @property {string} used
 * @property {string} advice  Empty while there is room.
 */

/**
 * @param {number} tokens  Of the conversation and what is being written.
 * @param {number} contextLength
 * @param {number} maxTokens  That the answer may have.
 * @returns {ContextState}
 */
export function contextState(tokens, contextLength, maxTokens) {
  const used = `${tokens.toLocaleString('en')} of ${contextLength.toLocaleString('en')} tokens`;
  const left = contextLength - tokens;
  if (left < 1) {
    const advice =
      'The context is full: nothing is left out silently, so this message cannot be sent. Edit an earlier message to ' +
      'branch off there, or begin a new chat.';
    return { level: 'full', used, advice };
  }
  if (left < maxTokens) {
    const room = left === 1 ? 'one more token' : `${left.toLocaleString('en')} more tokens`;
    return { level: 'tight', used, advice: `There is room for ${room}: a longer answer is cut off there.` };
  }
  return { level: 'roomy', used, advice: '' };
}
