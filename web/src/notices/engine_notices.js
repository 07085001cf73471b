/**
 * What happens to an engine behind the views: its GPU goes away and comes back, it ends, the browser sets the tab aside.
 * @import {Pageloom} from '../engine.js'
 * @import {PageloomError} from '../errors.js'
 * @import {Recovery} from '../protocol.js'
 * @import {Notices} from './notices.js'
 */

import { counted, errorInWords } from '../words.js';

/** Held by every tab that has a model; a tab that holds a lock is not frozen by the browser to save power either. */
const LOCK = 'pageloom-engine';

/**
 * Follows an engine until it ends or another takes its place.
 * @param {Pageloom} engine
 * @param {Notices} notices
 * @param {AbortSignal} replaced
 */
export function followRecovery(engine, notices, replaced) {
  const options = { signal: replaced };
  replaced.addEventListener('abort', () => notices.hide('recovery'));
  engine.addEventListener(
    'recovery',
    (event) => notices.show('recovery', recoveryInWords(/** @type {CustomEvent<Recovery>} */ (event).detail)),
    options,
  );
}

/**
 * @param {Recovery} recovery
 * @returns {import('./notices.js').Notice}
 */
export function recoveryInWords({ state, requests, seconds, adapter }) {
  const going = requests === 0 ? 'Nothing was running.' : `${counted(requests, 'request')} `;
  if (state === 'lost') {
    const text = requests === 0 ? going : `${going}will go on where ${requests === 1 ? 'it' : 'they'} stopped.`;
    return { title: 'The GPU went away. Setting it up again', text };
  }
  const slow = adapter.adapter_class === 'software' ? ' It is a software adapter, which is slow.' : '';
  const text =
    requests === 0
      ? going
      : `${going}${requests === 1 ? 'goes' : 'go'} on where ${requests === 1 ? 'it' : 'they'} stopped.`;
  return { title: `The GPU is back after ${Math.max(1, Math.round(seconds))} s`, text: text + slow };
}

/**
 * @param {PageloomError} error
 * @param {[label: string, onClick: () => void]} action
 * @returns {import('./notices.js').Notice}
 */
export function endInWords({ error }, action) {
  const { title, advice, detail } = errorInWords(error);
  return { title, text: [sentence(detail), advice].filter(Boolean).join(' '), actions: [action], urgent: true };
}

/**
 * @param {string} reason
 * @returns {import('./notices.js').Notice}
 */
export function noWebGpuInWords(reason) {
  const text = `So models cannot run in this tab: ${reason}. They can run on a local worker; Models says how.`;
  return { title: 'This browser gives the page no GPU', text };
}

/**
 * Marks that this tab has a model, and says so where another one has one too.
 * @param {Notices} notices
 * @param {AbortSignal} replaced  Ends the mark.
 */
export async function markTab(notices, replaced) {
  const { held = [] } = await navigator.locks.query();
  if (held.some(({ name }) => name === LOCK)) {
    notices.show('tabs', {
      title: 'Another tab has a model loaded too',
      text: 'Both work. They share the copies of models that this browser keeps, and each is slower and has less GPU memory.',
    });
  }
  await navigator.locks.request(LOCK, { mode: 'shared' }, () => ended(replaced));
}

/** @param {AbortSignal} signal */
function ended(signal) {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener('abort', resolve, { once: true });
  });
}

/**
 * A hidden tab goes on; where the browser froze it all the same, says so once it is back.
 * @param {Notices} notices
 */
export function watchFreezing(notices) {
  let frozenAt = 0;
  document.addEventListener('freeze', () => {
    frozenAt = Date.now();
  });
  document.addEventListener('resume', () => {
    const seconds = Math.max(1, Math.round((Date.now() - frozenAt) / 1000));
    notices.show('frozen', {
      title: `The browser had frozen this tab for ${seconds} s`,
      text: 'What was running goes on now. Browsers freeze tabs in the background to save power; this one can be excepted in their settings.',
    });
  });
}

/** @param {string} words */
function sentence(words) {
  return words && `${words.charAt(0).toUpperCase()}${words.slice(1).replace(/\.$/, '')}.`;
}
