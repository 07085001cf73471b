/**
 * The page: one engine at a time, shown by four views, and a fifth that needs no model.
 * @import {Pageloom} from './engine.js'
 * @import {PageloomError} from './errors.js'
 */

import { BatchView } from './batch/batch_view.js';
import { ChatView } from './chat/chat_view.js';
import { button, byId, element } from './dom.js';
import { InsideView } from './inside/inside_view.js';
import { ModelsView } from './models/models_view.js';
import { OperatorsView } from './operators/operators_view.js';
import { StatusBar } from './status_bar.js';
import { setUpTabs } from './tabs.js';
import { errorInWords } from './words.js';

/** @type {Pageloom | null} */
let engine = null;

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
  byId('banner').hidden = true;
  for (const view of [batch, chat, inside]) view.use(next);
  if (!next) return statusBar.clear();
  statusBar.follow(next);
  next.lost.then((error) => next === engine && showEnded(next, error));
  return tabs.show('batch');
}

/**
 * @param {Pageloom} ended
 * @param {PageloomError} error
 */
function showEnded(ended, { error }) {
  const { stored } = ended.model;
  const { title, advice } = errorInWords(error);
  const banner = byId('banner');
  banner.replaceChildren(
    element('strong', {}, title),
    element('span', {}, advice),
    button(stored ? 'Load the model again' : 'Choose a model', () => {
      tabs.show('models');
      if (stored) models.load({ model: { stored } });
    }),
  );
  banner.hidden = false;
}

// A file that misses the places for files would otherwise be opened by the browser, in place of the page.
for (const type of ['dragover', 'drop']) window.addEventListener(type, (event) => event.preventDefault());

tabs.show('models');
if (new URLSearchParams(location.search).get('model') === 'built-in') models.load({ model: 'built-in' });
