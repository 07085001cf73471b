/**
 * Where models run: in this tab, or on a local worker that is asked over HTTP. Above the models, which are the tab's.
 */

import { desktop } from '../desktop.js';
import { button, element, field } from '../dom.js';
import { Pageloom } from '../engine.js';
import { failureBox } from '../failure_box.js';
import { LocalServer, serveCommand, USUAL_ADDRESS } from '../server/local_server.js';

/** The address is kept; the token never is. */
const KEPT = 'pageloom-local-worker';

/**
 * @typedef {object} BackendListener
 * @property {(engine: Pageloom) => void} onConnected
 * @property {() => void} onTab  Models run in this tab again.
 * @property {(file: import('../desktop.js').OpenedFile) => void} onFile  A model file for this tab.
 * @property {(server: LocalServer | null) => Promise<void>} onServer  What the operators view may ask, too.
 */

export class BackendView {
  #listener;
  #models;
  #tab = element('input', { type: 'radio', name: 'backend', value: 'tab', checked: true });
  #worker = element('input', { type: 'radio', name: 'backend', value: 'worker' });
  #address = element('input', { type: 'text', spellcheck: false, value: localStorage.getItem(KEPT) ?? USUAL_ADDRESS });
  #token = element('input', { type: 'password', autocomplete: 'off' });
  #command = element('code');
  #connect = element('button', { type: 'submit', class: 'primary' }, 'Connect');
  #state = element('p', { role: 'status', class: 'backend-state' });
  #failure = element('div', { class: 'outcome' });
  #form = element('form', { class: 'backend-form', hidden: true });
  #attempt = new AbortController();

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} models  Shown while models run in this tab.
   * @param {BackendListener} listener
   */
  constructor(root, models, listener) {
    this.#models = models;
    this.#listener = listener;
    for (const choice of [this.#tab, this.#worker]) choice.addEventListener('change', () => this.#choose());
    this.#address.addEventListener('input', () => this.#showCommand());
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.connect();
    });
    const copy = button('Copy', () => navigator.clipboard.writeText(this.#command.textContent ?? ''), {
      class: 'quiet',
      'aria-label': 'Copy the command',
    });
    this.#form.append(
      ...this.#starters(),
      element('p', {}, 'Start it in a terminal on this machine; it lets this page ask, and no other:'),
      element('p', { class: 'command' }, this.#command, copy),
      element(
        'div',
        { class: 'backend-fields' },
        field('Address', this.#address),
        field('Token', this.#token, 'Only where it was started with one.'),
        element('div', { class: 'actions' }, this.#connect),
      ),
      this.#state,
      this.#failure,
    );
    root.append(
      element(
        'fieldset',
        { class: 'backend' },
        element('legend', {}, 'Models run'),
        element(
          'div',
          { class: 'backend-choices' },
          element('label', { class: 'check' }, this.#tab, 'in this tab, on WebGPU'),
          element('label', { class: 'check' }, this.#worker, 'on a local worker: CPU, CUDA or native WebGPU'),
          ...(desktop ? [button('Open a model', () => this.#open())] : []),
        ),
        this.#form,
      ),
    );
    this.#showCommand();
  }

  /** Connects to the address in the form, and takes that engine in place of the one there is. */
  async connect() {
    await this.#try('Connecting', (signal) => this.#connectTo(this.#address.value, this.#token.value, signal));
  }

  /** Lets models run in this tab again, where they run on a worker or were to. */
  useTab() {
    if (this.#tab.checked) return;
    this.#tab.checked = true;
    this.#choose();
  }

  /**
   * Says how it went wrong, if it does. Another attempt ends this one, and so does the choice of the tab.
   * @param {string} words
   * @param {(signal: AbortSignal) => Promise<void>} work
   */
  async #try(words, work) {
    this.#attempt.abort();
    this.#attempt = new AbortController();
    const { signal } = this.#attempt;
    this.#worker.checked = true;
    this.#showChoice();
    this.#failure.replaceChildren();
    this.#state.textContent = words;
    this.#connect.disabled = true;
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#state.textContent = '';
      this.#failure.replaceChildren(failureBox(error));
    } finally {
      if (!signal.aborted) this.#connect.disabled = false;
    }
  }

  /**
   * @param {string} address
   * @param {string} token
   * @param {AbortSignal} signal
   */
  async #connectTo(address, token, signal) {
    const server = new LocalServer(address.trim(), token.trim());
    const { backend } = await server.health();
    const engine = await Pageloom.connect(server, { signal });
    try {
      await this.#listener.onServer(server);
      signal.throwIfAborted();
    } catch (error) {
      engine.close();
      if (this.#tab.checked) this.#listener.onServer(null);
      throw error;
    }
    localStorage.setItem(KEPT, server.address);
    const { name, adapter } = engine.model;
    this.#state.textContent = `Connected: ${name} on ${BACKENDS[backend] ?? backend}, ${adapter.description}.`;
    this.#listener.onConnected(engine);
  }

  /** In the desktop app, which starts and ends the worker itself. */
  #starters() {
    if (!desktop) return [];
    const starters = Object.entries(BACKENDS).map(([backend, name]) =>
      button(`Start on ${name}`, () => this.#start(backend)),
    );
    return [element('div', { class: 'actions' }, ...starters)];
  }

  async #open() {
    const file = await desktop?.openModel();
    if (file) this.#listener.onFile(file);
  }

  /** @param {string} backend */
  async #start(backend) {
    await this.#try('Starting the worker and loading its model', async (signal) => {
      const { address, token } = await /** @type {import('../desktop.js').DesktopApp} */ (desktop).startWorker(backend);
      signal.throwIfAborted();
      this.#address.value = address;
      this.#token.value = token;
      await this.#connectTo(address, token, signal);
    });
  }

  #choose() {
    this.#showChoice();
    this.#state.textContent = '';
    this.#failure.replaceChildren();
    if (!this.#tab.checked) return;
    this.#attempt.abort();
    this.#connect.disabled = false;
    desktop?.stopWorker();
    this.#listener.onServer(null);
    this.#listener.onTab();
  }

  #showChoice() {
    this.#models.hidden = this.#worker.checked;
    this.#form.hidden = !this.#worker.checked;
  }

  #showCommand() {
    this.#command.textContent = serveCommand(location.origin, this.#address.value.trim());
  }
}

/** @type {Record<string, string>} */
const BACKENDS = { cpu: 'the CPU', cuda: 'CUDA', webgpu: 'native WebGPU' };
