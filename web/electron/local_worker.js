/**
 * `pageloom serve` as a child of the app: started when the user asks for it, on a free port, with a token that only
 * this app knows, and ended with the app.
 */

import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { ORIGIN } from './page_protocol.js';

const BACKENDS = ['cpu', 'cuda', 'webgpu'];
/** Of standard error, kept for the message when it does not start. */
const LINES_KEPT = 5;
const HOW_TO_INSTALL = "Install it with pip install 'pageloom[worker]', or name it in PAGELOOM_COMMAND";

/** @typedef {{address: string, token: string}} Running */

export class LocalWorker {
  #spawn;
  #env;
  /** @type {import('node:child_process').ChildProcess | null} */
  #process = null;
  /** @type {Promise<unknown>} The last start or stop; the next waits for it, or two would leave a process behind. */
  #last = Promise.resolve();
  #isOver = false;

  /**
   * @param {typeof import('node:child_process').spawn} spawn
   * @param {NodeJS.ProcessEnv} env  `PAGELOOM_COMMAND` may name the program.
   */
  constructor(spawn, env) {
    this.#spawn = spawn;
    this.#env = env;
  }

  /**
   * Starts it, in place of the one that runs; resolves once it answers.
   * @param {string} backend
   * @returns {Promise<Running>}
   */
  async start(backend) {
    if (!BACKENDS.includes(backend)) throw new Error(`there is no backend ${backend}; there is ${BACKENDS.join(', ')}`);
    this.#signal(); // one that is still starting need not be waited for
    return this.#afterLast(() => this.#start(backend));
  }

  /** Ends it, if it runs, and waits for its end. */
  stop() {
    this.#signal();
    return this.#afterLast(() => this.#stop());
  }

  /** Ends it at once, without waiting: the app is on its way out. */
  kill() {
    this.#isOver = true;
    this.#process?.kill('SIGKILL');
    this.#process = null;
  }

  #signal() {
    this.#process?.kill();
  }

  /**
   * @template Result
   * @param {() => Promise<Result>} work
   * @returns {Promise<Result>}
   */
  #afterLast(work) {
    const result = this.#last.then(work);
    this.#last = result.catch(() => {});
    return result;
  }

  /**
   * @param {string} backend
   * @returns {Promise<Running>}
   */
  async #start(backend) {
    await this.#stop();
    if (this.#isOver) throw new Error('the app is ending');
    const token = randomBytes(32).toString('hex');
    const command = this.#env.PAGELOOM_COMMAND ?? 'pageloom';
    const options = ['serve', '--port', '0', '--json', '--backend', backend, '--allow-origin', ORIGIN];
    // The token goes by the environment: a command line can be read by every user of the machine.
    const child = this.#spawn(command, options, {
      env: { ...this.#env, PAGELOOM_TOKEN: token },
      stdio: ['ignore', 'pipe', 'pipe'],
      windowsHide: true,
    });
    this.#process = child;
    try {
      const address = await addressOf(child, command);
      const { ok, status } = await fetch(`${address}/healthz`);
      if (!ok) throw new Error(`the local worker at ${address} says that it is not well: HTTP ${status}`);
      return { address, token };
    } catch (error) {
      await this.#stop();
      throw error;
    }
  }

  async #stop() {
    const child = this.#process;
    this.#process = null;
    if (!child?.pid || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill();
    await ended;
  }
}

/**
 * What it prints first: a line of JSON with its URL. Rejects, with what it said, where it ends before.
 * @param {import('node:child_process').ChildProcess} child
 * @param {string} command
 * @returns {Promise<string>}
 */
function addressOf(child, command) {
  const errors = /** @type {import('node:stream').Readable} */ (child.stderr);
  const output = /** @type {import('node:stream').Readable} */ (child.stdout);
  /** @type {string[]} */
  const said = [];
  createInterface(errors).on('line', (line) => said.push(line) > LINES_KEPT && said.shift());
  return new Promise((resolve, reject) => {
    createInterface(output).once('line', (line) => {
      try {
        resolve(JSON.parse(line).url);
      } catch {
        reject(new Error(`${command} is no Pageloom: it says ${line}`));
      }
    });
    child.once('error', () => reject(new Error(`${command} does not start. ${HOW_TO_INSTALL}`)));
    child.once('close', (code) => reject(new Error(`the local worker ended with ${code}: ${said.join(' ')}`)));
  });
}
