/**
 * The page: one engine at a time, shown by four views, and a fifth that needs no model.
 * @import {Pageloom} from './engine.js'
 */

import { BackendView } from './backend/backend_view.js';
import { BatchView } from './batch/batch_view.js';
import { ChatView } from './chat/chat_view.js';
import { desktop } from './desktop.js';
import { byId } from './dom.js';
import { InsideView } from './inside/inside_view.js';
import { ModelsView } from './models/models_view.js';
import { endInWords, followRecovery, markTab, noWebGpuInWords, watchFreezing } from './notices/engine_notices.js';
import { Notices } from './notices/notices.js';
import { workOffline } from './offline/offline.js';
import { OperatorsView } from './operators/operators_view.js';
import { StatusBar } from './status_bar.js';
import { setUpTabs } from './tabs.js';
import { whyNoWebGpu } from './webgpu_support.js';

/** @type {Pageloom | null} */
let engine = null;
let replaced = new AbortController();

const notices = new Notices(byId('notices'));
const statusBar = new StatusBar(byId('status'));
const batch = new BatchView(byId('view-batch'), (choice) => loadHere({ model: choice }));
const chat = new ChatView(byId('view-chat'));
const inside = new InsideView(byId('view-inside'));
const models = new ModelsView(byId('models'), () => use(null), use);
const backend = new BackendView(byId('backend'), byId('models'), {
  onConnected: (connected) => {
    models.cancel(); // its load would end by closing this engine
    use(connected);
  },
  onTab: () => engine?.server && use(null),
  onFile: openFile,
  onServer: (server) => operators.useServer(server),
});
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
  if (!next.server) markTab(notices, replaced.signal);
  next.lost.then((error) => next === engine && notices.show('end', endInWords(error, startAgain(next))));
  tabs.show('batch');
  // What had the focus, such as the button that was pressed, went away with the view that it was in.
  const { activeElement } = document;
  if (activeElement === document.body || byId('view-models').contains(activeElement)) byId('tab-batch').focus();
}

/**
 * Loads a model into this tab, where its progress can be seen.
 * @param {import('./engine.js').LoadOptions} options
 */
function loadHere(options) {
  backend.useTab();
  tabs.show('models');
  models.load(options);
}

/** @param {import('./desktop.js').OpenedFile} file */
function openFile({ url, name }) {
  if (!models.isBusy) return loadHere({ model: url, store: false });
  notices.show('opened', {
    title: `${name} was not opened`,
    text: 'Models is busy with another one. Open it again when that is done or cancelled.',
  });
}

/**
 * @param {Pageloom} ended
 * @returns {[label: string, onClick: () => void]}
 */
function startAgain({ server, model: { stored } }) {
  const label = server ? 'Connect again' : stored ? 'Load the model again' : 'Choose a model';
  return [
    label,
    () => {
      if (stored && !server) return loadHere({ model: { stored } });
      tabs.show('models');
      if (server) backend.connect();
      else backend.useTab();
    },
  ];
}

watchFreezing(notices);
whyNoWebGpu().then((reason) => reason && notices.show('no-webgpu', noWebGpuInWords(reason)));

// A file that misses the places for files would otherwise be opened by the browser, in place of the page.
for (const type of ['dragover', 'drop']) window.addEventListener(type, (event) => event.preventDefault());

tabs.show(tabs.first);
desktop?.onOpened(openFile);
// What the first view needs comes first.
window.addEventListener('load', () => workOffline(notices));
if (new URLSearchParams(location.search).get('model') === 'built-in') models.load({ model: 'built-in' });
