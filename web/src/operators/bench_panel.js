/**
 * Benchmarks: each tier of the operators beside what limits it, on this browser's GPU or on a local worker.
 * @import {BenchRow} from '../protocol.js'
 * @import {BenchReport} from './bench_words.js'
 * @import {Target} from './target.js'
 */

import { button, element } from '../dom.js';
import { adapterInWords } from '../status_bar.js';
import { reportOf, runBench } from './bench.js';
import { BenchTable } from './bench_table.js';
import { linesOf, ratios, readReport } from './bench_words.js';
import { failureBox, Sharing } from './sharing.js';
import { benchOnServer } from './target.js';

export class BenchPanel {
  #abort = new AbortController();
  /** @type {Target} */
  #target = null;
  /** @type {BenchReport | null} */
  #report = null;
  /** @type {{report: BenchReport, name: string} | null} */
  #other = null;
  #run = button('Measure', () => this.#start(), { class: 'primary' });
  #stop = button('Stop', () => this.#abort.abort(), { disabled: true });
  #share = new Sharing(
    'pageloom-bench.json',
    () => `${JSON.stringify(this.#report, null, 1)}\n`,
    (text, name) => this.#compare(text, name),
  );
  #progress = element('progress', { class: 'case-progress', max: 1, value: 0, 'aria-label': 'Shapes measured' });
  #summary = element('p', { class: 'summary', role: 'status' });
  #device = element('p', { class: 'summary' });
  #against = element('p', { class: 'differences' });
  #failure = element('div', { class: 'outcome' });
  #table = new BenchTable();
  #printed = element('pre', { class: 'printed', hidden: true, tabIndex: 0 });

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#printed.setAttribute('aria-label', 'What the worker prints');
    root.append(
      element(
        'p',
        {},
        'Each call is repeated until it takes long enough to be timed, by the GPU’s own clock where the browser shows it. ' +
          'The limit is the bytes that must be read, or the sums that must be made, at the rates measured first.',
      ),
      element('div', { class: 'actions' }, this.#run, this.#stop),
      this.#progress,
      this.#summary,
      this.#device,
      this.#share.element,
      this.#against,
      this.#failure,
      this.#printed,
      this.#table.element,
    );
  }

  /** @param {Target} target */
  useTarget(target) {
    this.#abort.abort();
    this.#target = target;
  }

  async #start() {
    this.#abort = new AbortController();
    this.#running(true);
    this.#failure.replaceChildren();
    this.#printed.replaceChildren();
    this.#summary.textContent = this.#target ? 'Starting on the worker' : 'Starting Python';
    this.#device.textContent = '';
    this.#progress.removeAttribute('value');
    try {
      this.#report = this.#target ? await this.#onServer(this.#target) : await this.#inTab();
      this.#summary.textContent = 'Measured.';
    } catch (error) {
      if (this.#abort.signal.aborted) this.#summary.textContent = 'Stopped.';
      else {
        this.#summary.textContent = '';
        this.#failure.replaceChildren(failureBox(error));
      }
    } finally {
      this.#running(false);
      this.#show();
    }
  }

  /** @returns {Promise<BenchReport>} */
  #inTab() {
    /** @type {BenchRow[]} */
    const rows = [];
    /** @type {import('../protocol.js').BenchDescribed} */
    let described;
    return runBench({
      signal: this.#abort.signal,
      onDescribed: (told) => {
        described = told;
        const { adapter, rates, clock } = told;
        const timed = clock === 'gpu' ? 'its own clock' : 'the page’s clock: it has no timestamps';
        this.#device.textContent =
          `On ${adapterInWords(adapter)}, timed by ${timed}. It reads ${(rates.read / 1e9).toFixed(1)} GB/s and ` +
          `computes ${(rates.compute / 1e12).toFixed(3)} TFLOP/s.`;
        this.#summary.textContent = `0 of ${told.shapes.length} shapes measured`;
      },
      onRows: (measured) => {
        rows.push(...measured);
        const done = new Set(rows.map(({ shape }) => shape)).size;
        this.#progress.value = done / described.shapes.length;
        this.#summary.textContent = `${done} of ${described.shapes.length} shapes measured`;
        this.#report = reportOf(described, rows);
        this.#show();
      },
    });
  }

  /** @param {NonNullable<Target>} target */
  #onServer(target) {
    this.#printed.hidden = false;
    return benchOnServer(target, {
      signal: this.#abort.signal,
      onLine: (line) => {
        this.#printed.append(`${line}\n`);
        this.#summary.textContent = `Measuring on ${target.server.address}`;
      },
    });
  }

  /**
   * @param {string} text
   * @param {string} name
   */
  #compare(text, name) {
    try {
      this.#other = { report: readReport(text, 'results'), name };
      this.#failure.replaceChildren();
    } catch (error) {
      this.#failure.replaceChildren(failureBox(error));
    }
    this.#show();
  }

  #show() {
    const lines = this.#report ? linesOf(this.#report) : [];
    const against = this.#other ? ratios(lines, linesOf(this.#other.report)) : [];
    this.#table.show(lines, against);
    this.#share.enable(lines.length > 0);
    if (!this.#other) return;
    const { adapter, backend } = this.#other.report;
    const whose = adapter?.description ?? adapter?.name ?? backend ?? 'another machine';
    this.#against.textContent = `Against ${this.#other.name}, measured on ${whose}: above 1 this one is slower.`;
  }

  /** @param {boolean} running */
  #running(running) {
    this.#run.disabled = running;
    this.#stop.disabled = !running;
    if (!running && !this.#progress.hasAttribute('value')) this.#progress.value = 0;
  }
}
