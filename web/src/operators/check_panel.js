/**
 * Conformance: the attention operators against their reference, on this browser's GPU or on a local worker.
 * @import {AdapterInfo, CaseReport} from '../protocol.js'
 * @import {Wanted} from './case_table.js'
 * @import {Target} from './target.js'
 */

import { button, element, field } from '../dom.js';
import { failureBox } from '../failure_box.js';
import { adapterInWords } from '../status_bar.js';
import { counted } from '../words.js';
import { readReport } from './bench_words.js';
import { CaseTable } from './case_table.js';
import { differencesInWords, progressInWords, reportAsJson } from './case_words.js';
import { checkCases, listCases } from './check_cases.js';
import { Sharing } from './sharing.js';
import { checkOnServer } from './target.js';

const OUTCOMES = ['', 'passed', 'failed', 'skipped', 'not run'];

export class CheckPanel {
  #abort = new AbortController();
  #running = false;
  #opened = false;
  /** @type {AdapterInfo | null} */
  #adapter = null;
  #filter = element('input', { type: 'text', spellcheck: false });
  #outcome = element('select', {}, ...OUTCOMES.map((value) => element('option', { value }, value || 'any')));
  #run = button('Run', () => this.#start(), { class: 'primary', disabled: true });
  #stop = button('Stop', () => this.#abort.abort(), { disabled: true });
  #share = new Sharing(
    'pageloom-check.json',
    () => this.#json(),
    (text, name) => this.#compare(text, name),
  );
  /** @type {Target} */
  #target = null;
  #progress = element('progress', { class: 'case-progress', max: 1, value: 0, 'aria-label': 'Cases run' });
  #summary = element('p', { class: 'summary', role: 'status' });
  #device = element('p', { class: 'summary' });
  #failure = element('div', { class: 'outcome' });
  #differences = element('div', { class: 'differences' });
  #table = new CaseTable();

  /** @param {HTMLElement} root */
  constructor(root) {
    for (const control of [this.#filter, this.#outcome]) control.addEventListener('input', () => this.#show());
    root.append(
      element(
        'p',
        {},
        'Each case calls an attention operator and holds what comes out against a reference in double precision. ' +
          'How far off a number may be follows from its element type and the length of its sums.',
      ),
      element(
        'div',
        { class: 'operator-controls' },
        field('Cases with', this.#filter, 'Parts of names, such as “int4 decode”.'),
        field('Result', this.#outcome),
        element('div', { class: 'actions' }, this.#run, this.#stop),
      ),
      this.#progress,
      this.#summary,
      this.#device,
      this.#share.element,
      this.#differences,
      this.#failure,
      this.#table.element,
    );
    this.#show();
  }

  /** Lists the cases, the first time that the view is looked at. */
  async open() {
    if (this.#opened || this.#target) return;
    this.#opened = true;
    try {
      const cases = await listCases();
      if (this.#target) return; // it was chosen meanwhile, and lists its own
      this.#table.list(cases);
      this.#show();
    } catch (error) {
      this.#opened = false;
      this.#fail(error);
    }
  }

  /** @param {Target} target */
  useTarget(target) {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#target = target;
    this.#adapter = null;
    this.#opened = false;
    this.#running = false;
    this.#progress.value = 0;
    for (const part of [this.#device, this.#summary, this.#failure, this.#differences]) part.replaceChildren();
    this.#table.list([]);
    this.#show();
    this.open();
  }

  /** Shows what the filter lets through, and says how many that is. */
  #show() {
    this.#table.filter(this.#filter.value, /** @type {Wanted} */ (this.#outcome.value));
    const count = this.#table.shown.length;
    this.#run.textContent = this.#target ? 'Run the main cases' : `Run ${counted(count, 'case')}`;
    this.#run.disabled = this.#running || (count === 0 && !this.#target);
    this.#stop.disabled = !this.#running;
    this.#share.enable(!this.#running && this.#adapter !== null && this.#table.reports.length > 0);
  }

  async #start() {
    const files = this.#target ? [] : this.#table.shown;
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    this.#running = true;
    this.#failure.replaceChildren();
    if (this.#target) this.#table.list([]);
    else this.#table.clear(files);
    this.#summary.textContent = this.#target ? 'Starting on the worker' : 'Starting Python';
    this.#progress.removeAttribute('value');
    this.#show();
    /** @type {CaseReport[]} */
    const reports = [];
    let expected = files.length;
    const onReport = (/** @type {CaseReport} */ report, total = files.length) => {
      if (signal.aborted) return;
      expected = total;
      reports.push(report);
      this.#table.put(report);
      this.#progress.value = reports.length / total;
      this.#summary.textContent = progressInWords(reports, total);
    };
    try {
      if (this.#target) {
        const adapter = await checkOnServer(this.#target, this.#filter.value, { signal, onReport });
        signal.throwIfAborted();
        this.#tell(adapter);
      } else await checkCases(files, { signal, onAdapter: (adapter) => this.#tell(adapter), onReport });
    } catch (error) {
      if (signal !== this.#abort.signal) return; // another target was chosen meanwhile
      if (signal.aborted) this.#summary.textContent = `Stopped: ${progressInWords(reports, expected)}`;
      else this.#fail(error);
    }
    this.#running = false;
    this.#progress.value = reports.length / Math.max(expected, 1);
    this.#show();
  }

  /** @param {AdapterInfo} adapter */
  #tell(adapter) {
    this.#adapter = adapter;
    const f16 = 'f16' in adapter ? `, ${adapter.f16 ? 'native' : 'packed'} f16` : '';
    this.#device.textContent = `On ${adapterInWords(adapter)}${f16}.`;
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#summary.textContent = '';
    this.#failure.replaceChildren(failureBox(error));
  }

  #json() {
    const backend = this.#target?.backend ?? 'tab';
    return reportAsJson(backend, /** @type {AdapterInfo} */ (this.#adapter), this.#table.reports);
  }

  /**
   * @param {string} text
   * @param {string} name
   */
  #compare(text, name) {
    try {
      const lines = differencesInWords(this.#table.reports, readReport(text, 'cases').cases);
      const heading = lines.length
        ? `${counted(lines.length, 'case')} came out otherwise in ${name}:`
        : `As in ${name}.`;
      this.#differences.replaceChildren(
        element('p', {}, heading),
        element('ul', {}, ...lines.map((line) => element('li', {}, line))),
      );
      this.#failure.replaceChildren();
    } catch (error) {
      this.#fail(error);
    }
  }
}
