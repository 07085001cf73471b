/**
 * A conversation as a file. Pure.
 * @import {Conversation} from './tree.js'
 */

import { nodeOf, shownBranch, titleOf } from './tree.js';

const HEADINGS = { user: 'You', assistant: 'Answer' };

/**
 * The branch that is shown, as Markdown.
 * @param {Conversation} conversation
 */
export function toMarkdown(conversation) {
  const { system } = conversation.settings;
  const parts = [`# ${titleOf(conversation)}`];
  if (system) parts.push(`## System prompt\n\n${system}`);
  for (const id of shownBranch(conversation)) {
    const { role, content, state } = nodeOf(conversation, id);
    const aside = state && state !== 'whole' ? ` (${state})` : '';
    parts.push(`## ${HEADINGS[role]}${aside}\n\n${content}`);
  }
  return `${parts.join('\n\n')}\n`;
}

/**
 * All branches, with the settings.
 * @param {Conversation} conversation
 */
export function toJson(conversation) {
  const { changed, settings, nodes } = conversation;
  const shown = shownBranch(conversation);
  return `${JSON.stringify({ title: titleOf(conversation), changed, settings, shown, messages: nodes }, null, 2)}\n`;
}

/**
 * A name that every file system takes.
 * @param {Conversation} conversation
 * @param {'md' | 'json'} ending
 */
export function fileNameOf(conversation, ending) {
  const words = titleOf(conversation).match(/[\p{L}\p{N}]+/gu) ?? [];
  return `${words.join('-').toLowerCase() || 'chat'}.${ending}`;
}
