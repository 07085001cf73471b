/**
 * The buttons above the table, how far the run is, and which rows show.
 * @import {Readiness} from './batch_results.js'
 * @import {BatchRun} from './batch_run.js'
 * @import {Group} from './order.js'
 */

import { button, element } from '../dom.js';
import { batchInWords, counted } from '../words.js';
import { GROUPS, isIn } from './order.js';
import { durationInWords, timeLeft } from './progress.js';

/** A screen reader hears of the progress this often at most. */
const TELL_MS = 10_000;
/** @type {Record<Group, string>} */
const LABELS = { all: 'All', 'to run': 'To run', running: 'Running', done: 'Done', failed: 'Failed' };
const EXPORTS = /** @type {const} */ (['CSV', 'JSON Lines', 'JSON']);

/**
 * @typedef {typeof EXPORTS[number]} ExportKind
 *
 * @typedef {object} BarListener
 * @property {() => void} onRun
 * @property {() => void} onStop
 * @property {() => void} onRetry
 * @property {(kind: ExportKind) => void} onExport
 * @property {(what: 'answers' | 'everything') => void} onClear
 * @property {() => void} onFilter
 */

export class RunBar {
  /** @type {Group} */
  group = 'all';
  #run;
  #stop;
  #retry;
  #export;
  #clear;
  #words = element('p', { class: 'summary' });
  #done = element('i', { class: 'done' });
  #failed = element('i', { class: 'failed' });
  #bar = element('div', { class: 'progress', 'aria-hidden': true }, this.#done, this.#failed);
  #announcement = element('p', { class: 'visually-hidden', role: 'status' });
  #note = element('p', { class: 'note' });
  #search = element('input', { type: 'search', placeholder: 'Find in rows', 'aria-label': 'Find in rows' });
  #toldAt = 0;
  #wasRunning = false;
  #groups;
  /** What there is to say of rows, where there are some. */
  #about;
  element;

  /** @param {BarListener} listener */
  constructor(listener) {
    this.#run = button('Run', listener.onRun, { class: 'primary' });
    this.#stop = button('Stop all', listener.onStop);
    this.#retry = button('Retry failed', listener.onRetry);
    this.#export = menu(
      'Export',
      EXPORTS.map((kind) => [`Export ${kind}`, () => listener.onExport(kind)]),
    );
    this.#clear = menu('Clear', [
      ['Clear the answers', () => listener.onClear('answers')],
      ['Clear everything', () => listener.onClear('everything')],
    ]);
    this.#groups = GROUPS.map((group) =>
      button('', () => {
        this.group = group;
        listener.onFilter();
      }),
    );
    this.#search.addEventListener('input', listener.onFilter);
    const groups = element('div', { class: 'groups', role: 'group', 'aria-label': 'Show' }, ...this.#groups);
    this.#about = element(
      'div',
      { class: 'about' },
      this.#bar,
      this.#words,
      element('div', { class: 'filters' }, groups, this.#search),
    );
    this.element = element(
      'div',
      { class: 'run-bar' },
      element(
        'div',
        { class: 'toolbar' },
        this.#run,
        this.#stop,
        this.#retry,
        element('span', { class: 'spring' }),
        this.#export.opener,
        this.#export.list,
        this.#clear.opener,
        this.#clear.list,
      ),
      this.#note,
      this.#announcement,
      this.#about,
    );
  }

  /** Shows all rows again. */
  reset() {
    this.group = 'all';
    this.#search.value = '';
  }

  get search() {
    return this.#search.value;
  }

  /**
   * @param {BatchRun} run
   * @param {Readiness} readiness
   * @param {number} rate  Tokens a second.
   */
  show(run, { label, canRun, why, note }, rate) {
    const { counts, isRunning, rows } = run;
    setText(this.#run, label);
    this.#about.hidden = counts.total === 0;
    this.#run.disabled = !canRun;
    this.#run.title = why;
    setText(this.#note, note);
    this.#stop.disabled = !isRunning;
    this.#retry.disabled = counts.failed === 0 || why !== '';
    this.#export.opener.disabled = counts.done + counts.stopped + counts.failed === 0;
    this.#clear.opener.disabled = counts.total === 0;
    const share = counts.total === 0 ? 0 : 100 / counts.total;
    this.#done.style.width = `${share * counts.done}%`;
    this.#failed.style.width = `${share * counts.failed}%`;
    const left = isRunning ? timeLeft(rows, rate) : null;
    const words = [
      counts.total === 0 ? '' : batchInWords(counts),
      isRunning && rate > 0 ? `${rate.toFixed(1)} tokens/s` : '',
      left ? `${left.atMost ? 'at most' : 'about'} ${durationInWords(left.seconds)} left` : '',
    ];
    setText(this.#words, words.filter(Boolean).join(' · '));
    for (const [index, group] of GROUPS.entries()) {
      const chip = /** @type {HTMLElement} */ (this.#groups[index]);
      setText(chip, `${LABELS[group]} ${rows.filter((row) => isIn(group, row)).length}`);
      chip.setAttribute('aria-pressed', String(group === this.group));
    }
    this.#announce(counts, isRunning);
  }

  /**
   * @param {BatchRun['counts']} counts
   * @param {boolean} isRunning
   */
  #announce({ total, done, stopped, failed }, isRunning) {
    const now = performance.now();
    const changed = isRunning !== this.#wasRunning;
    if (!changed && !(isRunning && now - this.#toldAt > TELL_MS)) return;
    this.#wasRunning = isRunning;
    this.#toldAt = now;
    const ends = [`${done} answered`, stopped && `${stopped} stopped`, failed && `${failed} failed`].filter(Boolean);
    this.#announcement.textContent = `${isRunning ? 'Running' : 'Finished'}: ${counted(total, 'row')}, ${ends.join(', ')}`;
  }
}

let menus = 0;

/**
 * A button that opens a list of buttons.
 * @param {string} label
 * @param {[string, () => void][]} items
 */
function menu(label, items) {
  menus += 1;
  const list = element('div', { class: 'menu', popover: 'auto', id: `batch-menu-${menus}` });
  list.append(
    ...items.map(([words, onClick]) =>
      button(words, () => {
        list.hidePopover();
        onClick();
      }),
    ),
  );
  const opener = button(label, () => {}, { class: 'opens', popoverTargetElement: list });
  return { opener, list };
}

/**
 * @param {HTMLElement} node
 * @param {string} text
 */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
