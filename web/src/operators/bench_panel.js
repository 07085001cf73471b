/**
 * Benchmarks: each tier of the operators beside what limits it, on this browser's GPU or on a local worker.
 * @import {BenchReport} from './bench_words.js'
 * @import {Target} from './target.js'
 */

import { button, element, field } from '../dom.js';
import { failureBox } from '../failure_box.js';
import { adapterInWords } from '../status_bar.js';
import { counted } from '../words.js';
import { reportOf, runBench } from './bench.js';
import { BenchTable } from './bench_table.js';
import { linesOf, machineOf, ratios, readReport } from './bench_words.js';
import { Sharing } from './sharing.js';
import { benchOnServer } from './target.js';

export class BenchPanel {
  #abort = new AbortController();
  /** @type {Target} */
  #target = null;
  /** @type {BenchReport | null} */
  #report = null;
  /** @type {{report: BenchReport, name: string} | null} */
  #other = null;
  #filter = element('input', { type: 'text', spellcheck: false });
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

  /** @param {HTMLElement} root */
  constructor(root) {
    root.append(
      element(
        'p',
        {},
        'Each call is repeated until it takes long enough to be timed, by the GPU’s own clock where there is one. ' +
          'The limit is the bytes that must be read, or the sums that must be made, at the rates measured first.',
      ),
      element(
        'div',
        { class: 'operator-controls' },
        field('Shapes with', this.#filter, 'Parts of names, such as “decode int8”; empty is all of them.'),
        element('div', { class: 'actions' }, this.#run, this.#stop),
      ),
      this.#progress,
      this.#summary,
      this.#device,
      this.#share.element,
      this.#against,
      this.#failure,
      this.#table.element,
    );
  }

  /** @param {Target} target */
  useTarget(target) {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#target = target;
    this.#clear();
    this.#running(false);
  }

  async #start() {
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    this.#clear();
    this.#running(true);
    this.#summary.textContent = this.#target ? 'Starting on the worker' : 'Starting Python';
    this.#progress.removeAttribute('value');
    let outcome = 'Measured.';
    try {
      if (this.#target) await this.#onServer(this.#target, signal);
      else await this.#inTab(signal);
    } catch (error) {
      outcome = signal.aborted ? 'Stopped.' : '';
      if (!signal.aborted) this.#fail(error);
    }
    if (signal !== this.#abort.signal) return; // another target was chosen meanwhile
    this.#summary.textContent = outcome;
    this.#running(false);
  }

  /** @param {AbortSignal} signal */
  async #inTab(signal) {
    /** @type {import('../protocol.js').BenchRow[]} */
    const rows = [];
    /** @type {import('../protocol.js').BenchDescribed} */
    let described;
    await runBench({
      signal,
      shapes: this.#filter.value,
      onDescribed: (told) => {
        described = told;
        const { adapter, rates, clock } = told;
        const timed = clock === 'gpu' ? 'its own clock' : 'the page’s clock: it has no timestamps';
        this.#device.textContent =
          `On ${adapterInWords(adapter)}, timed by ${timed}. It reads ${(rates.read / 1e9).toFixed(1)} GB/s and ` +
          `computes ${(rates.compute / 1e12).toFixed(3)} TFLOP/s.`;
        this.#tell(0, told.shapes.length);
      },
      onRows: (measured) => {
        if (signal.aborted) return;
        rows.push(...measured);
        this.#tell(new Set(rows.map(({ shape }) => shape)).size, described.shapes.length);
        this.#show(reportOf(described, rows));
      },
    });
  }

  /**
   * @param {NonNullable<Target>} target
   * @param {AbortSignal} signal
   */
  async #onServer(target, signal) {
    /** @type {object[]} */
    const results = [];
    let done = 0;
    const report = await benchOnServer(target, this.#filter.value, {
      signal,
      onRows: (measured, total) => {
        if (signal.aborted) return;
        results.push(...measured);
        done += 1;
        this.#tell(done, total);
        this.#show({ backend: target.backend, results });
      },
    });
    signal.throwIfAborted();
    this.#device.textContent = `On ${machineOf(report)}.`;
    this.#show(report);
  }

  /**
   * @param {string} text
   * @param {string} name
   */
  #compare(text, name) {
    try {
      this.#other = { report: readReport(text, 'results'), name };
      this.#failure.replaceChildren();
      this.#show(this.#report);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Forgets what was measured, but not the file to compare with. */
  #clear() {
    for (const part of [this.#failure, this.#summary, this.#device]) part.replaceChildren();
    this.#progress.value = 0;
    this.#show(null);
  }

  /**
   * @param {number} done
   * @param {number} total
   */
  #tell(done, total) {
    this.#progress.value = done / total;
    this.#summary.textContent = `${done} of ${counted(total, 'shape')} measured`;
  }

  /** @param {BenchReport | null} report */
  #show(report) {
    this.#report = report;
    const lines = report ? linesOf(report) : [];
    const against = this.#other ? ratios(lines, linesOf(this.#other.report)) : [];
    this.#table.show(lines, against);
    this.#share.enable(lines.length > 0);
    if (!this.#other) return;
    const whose = machineOf(this.#other.report);
    this.#against.textContent = `Against ${this.#other.name}, measured on ${whose}: above 1 this one is slower.`;
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#failure.replaceChildren(failureBox(error));
  }

  /** @param {boolean} running */
  #running(running) {
    this.#run.disabled = running;
    this.#stop.disabled = !running;
    if (!running && !this.#progress.hasAttribute('value')) this.#progress.value = 0;
  }
}
