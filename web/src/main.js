/**
 * The page: one engine at a time, shown by four views, and a fifth that needs no model.
 * @import {Pageloom} from './engine.js'
 */

import { BatchView } from './batch/batch_view.js';
import { ChatView } from './chat/chat_view.js';
import { byId } from './dom.js';
import { InsideView } from './inside/inside_view.js';
import { ModelsView } from './models/models_view.js';
import { endInWords, followRecovery, markTab, watchFreezing } from './notices/engine_notices.js';
import { Notices } from './notices/notices.js';
import { workOffline } from './offline/offline.js';
import { OperatorsView } from './operators/operators_view.js';
import { StatusBar } from './status_bar.js';
import { setUpTabs } from './tabs.js';

/** @type {Pageloom | null} */
let engine = null;
let replaced = new AbortController();

const notices = new Notices(byId('notices'));
const statusBar = new StatusBar(byId('status'));
const batch = new BatchView(byId('view-batch'));
const chat = new ChatView(byId('view-chat'));
const inside = new InsideView(byId('view-inside'));
const models = new ModelsView(byId('view-models'), () => use(null), use);
const operators = new OperatorsView(byId('view-operators'));
const tabs = setUpTabs(['models', 'batch', 'chat', 'inside', 'operators'], (name) => {
  inside.setVisible(name === 'inside');
  if (name === 'operators') operators.open();
});

/** @param {Pageloom | null} next */
function use(next) {
  engine?.close();
  engine = next;
  replaced.abort();
  replaced = new AbortController();
  notices.hide('end');
  for (const view of [batch, chat, inside]) view.use(next);
  if (!next) return statusBar.clear();
  statusBar.follow(next);
  followRecovery(next, notices, replaced.signal);
  markTab(notices, replaced.signal);
  next.lost.then((error) => next === engine && notices.show('end', endInWords(error, startAgain(next))));
  return tabs.show('batch');
}

/**
 * @param {Pageloom} ended
 * @returns {[label: string, onClick: () => void]}
 */
function startAgain({ model: { stored } }) {
  const label = stored ? 'Load the model again' : 'Choose a model';
  return [
    label,
    () => {
      tabs.show('models');
      if (stored) models.load({ model: { stored } });
    },
  ];
}

watchFreezing(notices);

// A file that misses the places for files would otherwise be opened by the browser, in place of the page.
for (const type of ['dragover', 'drop']) window.addEventListener(type, (event) => event.preventDefault());

tabs.show('models');
// What the first view needs comes first.
window.addEventListener('load', () => workOffline(notices));
if (new URLSearchParams(location.search).get('model') === 'built-in') models.load({ model: 'built-in' });
