/**
 * The operators view: the attention operators against their reference on this browser's GPU. It needs no model.
 * @import {AdapterInfo, CaseReport} from '../protocol.js'
 * @import {Wanted} from './case_table.js'
 */

import { button, download, element, field } from '../dom.js';
import { errorObject } from '../errors.js';
import { adapterInWords } from '../status_bar.js';
import { counted, errorInWords } from '../words.js';
import { CaseTable } from './case_table.js';
import { progressInWords, reportAsJson } from './case_words.js';
import { checkCases, listCases } from './check_cases.js';

const OUTCOMES = ['', 'passed', 'failed', 'skipped', 'not run'];

export class OperatorsView {
  #abort = new AbortController();
  #running = false;
  #opened = false;
  /** @type {AdapterInfo | null} */
  #adapter = null;
  #filter = element('input', { type: 'text', spellcheck: false });
  #outcome = element('select', {}, ...OUTCOMES.map((value) => element('option', { value }, value || 'any')));
  #run = button('Run', () => this.#start(), { class: 'primary', disabled: true });
  #stop = button('Stop', () => this.#abort.abort(), { disabled: true });
  #export = button('Export JSON', () => this.#download(), { disabled: true });
  #progress = element('progress', { class: 'case-progress', max: 1, value: 0, 'aria-label': 'Cases run' });
  #summary = element('p', { class: 'summary', role: 'status' });
  #device = element('p', { class: 'summary' });
  #failure = element('div', { class: 'outcome' });
  #table = new CaseTable();

  /** @param {HTMLElement} root */
  constructor(root) {
    for (const control of [this.#filter, this.#outcome]) control.addEventListener('input', () => this.#show());
    root.append(
      element(
        'div',
        { class: 'operators' },
        element(
          'p',
          {},
          'Each case calls PagedAttention on this GPU and holds what comes out against a reference in double precision. ' +
            'How far off a number may be follows from its element type and the length of its sums.',
        ),
        element(
          'div',
          { class: 'operator-controls' },
          field('Cases with', this.#filter, 'Parts of names, such as “int4 decode”.'),
          field('Result', this.#outcome),
          element('div', { class: 'actions' }, this.#run, this.#stop, this.#export),
        ),
        this.#progress,
        this.#summary,
        this.#device,
        this.#failure,
        this.#table.element,
      ),
    );
    this.#show();
  }

  /** Lists the cases, the first time that the view is looked at. */
  async open() {
    if (this.#opened) return;
    this.#opened = true;
    try {
      this.#table.list(await listCases());
      this.#show();
    } catch (error) {
      this.#opened = false;
      this.#fail(error);
    }
  }

  /** Shows what the filter lets through, and says how many that is. */
  #show() {
    this.#table.filter(this.#filter.value, /** @type {Wanted} */ (this.#outcome.value));
    const count = this.#table.shown.length;
    this.#run.textContent = `Run ${counted(count, 'case')}`;
    this.#run.disabled = this.#running || count === 0;
    this.#stop.disabled = !this.#running;
    this.#export.disabled = this.#running || this.#table.reports.length === 0;
  }

  async #start() {
    const files = this.#table.shown;
    this.#abort = new AbortController();
    this.#running = true;
    this.#failure.replaceChildren();
    this.#table.clear(files);
    this.#summary.textContent = 'Starting Python';
    this.#progress.removeAttribute('value');
    this.#show();
    /** @type {CaseReport[]} */
    const reports = [];
    try {
      await checkCases(files, {
        signal: this.#abort.signal,
        onAdapter: (adapter) => {
          this.#adapter = adapter;
          this.#device.textContent = `On ${adapterInWords(adapter)}, ${adapter.f16 ? 'native' : 'packed'} f16.`;
        },
        onReport: (report) => {
          reports.push(report);
          this.#table.put(report);
          this.#progress.value = reports.length / files.length;
          this.#summary.textContent = progressInWords(reports, files.length);
        },
      });
    } catch (error) {
      if (this.#abort.signal.aborted) this.#summary.textContent = `Stopped: ${progressInWords(reports, files.length)}`;
      else this.#fail(error);
    } finally {
      this.#running = false;
      this.#progress.value = reports.length / files.length;
      this.#show();
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    const { title, advice, detail } = errorInWords(errorObject(error));
    this.#summary.textContent = '';
    this.#failure.replaceChildren(
      element(
        'div',
        { class: 'failure', role: 'alert' },
        element('h2', {}, title),
        element('p', {}, advice),
        element('p', { class: 'detail' }, detail),
      ),
    );
  }

  #download() {
    if (this.#adapter) {
      download('pageloom-check.json', 'application/json', reportAsJson(this.#adapter, this.#table.reports));
    }
  }
}
