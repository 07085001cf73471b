/**
 * The last steps as two charts, one above the other: the tokens of each step, prompts and answers stacked, and its time.
 * @import {StepView} from '../protocol.js'
 */

import uPlot from 'uplot';
import { element } from '../dom.js';
import { stepInWords, stepsInWords } from './figures.js';

const HEIGHT = 150;
const AXIS_WIDTH = 52;
/** The charts are at least this many steps wide, so that the bars of the first ones are no broader than those of later ones. */
const FEWEST_STEPS = 40;

export class Timeline {
  /** @type {StepView[]} */
  #steps = [];
  #words = element('p', { class: 'told' });
  #prefill = element('span', { class: 'swatch prefill', 'aria-hidden': true });
  #decode = element('span', { class: 'swatch decode', 'aria-hidden': true });
  #time = element('span', { class: 'swatch time', 'aria-hidden': true });
  #charts = element('div', { class: 'charts', role: 'img' });
  /** @type {uPlot[]} Made once there is room for them. */
  #plots = [];

  constructor() {
    this.element = element(
      'div',
      { class: 'timeline' },
      this.#charts,
      this.#words,
      element(
        'ul',
        { class: 'legend plain' },
        element('li', {}, this.#prefill, ' prompt tokens (prefill)'),
        element('li', {}, this.#decode, ' answer tokens (decode)'),
        element('li', {}, this.#time, ' milliseconds a step'),
      ),
    );
    new ResizeObserver(() => this.#fit()).observe(this.element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#redraw());
    this.show([]);
  }

  /** @param {StepView[]} steps */
  show(steps) {
    this.#steps = steps;
    const words = stepsInWords(steps);
    this.#charts.setAttribute('aria-label', words);
    if (!this.#plots.some(({ cursor }) => typeof cursor.idx === 'number')) this.#words.textContent = words;
    this.#redraw();
  }

  #redraw() {
    const indices = this.#steps.map(({ index }) => index + 1);
    const decode = this.#steps.map(({ decode_tokens }) => decode_tokens);
    // Stacked: the bar of all tokens stands behind that of the answers'.
    const all = this.#steps.map(({ prefill_tokens, decode_tokens }) => prefill_tokens + decode_tokens);
    this.#plots[0]?.setData([indices, all, decode]);
    this.#plots[1]?.setData([indices, this.#steps.map(({ milliseconds }) => milliseconds)]);
  }

  #fit() {
    const width = this.element.clientWidth;
    if (width === 0) return;
    if (this.#plots.length === 0) {
      this.#plots = [
        this.#plot(width, 'tokens', [this.#bars(this.#prefill), this.#bars(this.#decode)]),
        this.#plot(width, 'ms', [this.#bars(this.#time)]),
      ];
      this.#redraw();
    }
    for (const plot of this.#plots) if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
  }

  /**
   * @param {number} width
   * @param {string} label
   * @param {uPlot.Series[]} series
   */
  #plot(width, label, series) {
    const line = () => getComputedStyle(this.#charts).color;
    const grid = { stroke: () => getComputedStyle(this.#charts).borderTopColor, width: 1 };
    const whole = (/** @type {uPlot} */ _plot, /** @type {number[]} */ splits) =>
      splits.map((value) => (Number.isInteger(value) ? `${value}` : ''));
    /** @type {uPlot.Options} */
    const options = {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false }, sync: { key: 'steps' }, y: false },
      scales: { x: { time: false, range: wide }, y: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.1)] } },
      axes: [
        { stroke: line, grid: { show: false }, ticks: grid, values: whole },
        { stroke: line, grid, ticks: { show: false }, size: AXIS_WIDTH, label, labelSize: 18, labelGap: 0 },
      ],
      series: [{}, ...series],
      hooks: { setCursor: [({ cursor }) => this.#tell(cursor.idx)] },
    };
    return new uPlot(options, [[], ...series.map(() => [])], this.#charts);
  }

  /**
   * @param {HTMLElement} swatch  Whose colour the bars have.
   * @returns {uPlot.Series}
   */
  #bars(swatch) {
    const colour = () => getComputedStyle(swatch).color;
    const paths = uPlot.paths.bars?.({ size: [0.8, 24] });
    return { fill: colour, stroke: colour, width: 0, points: { show: false }, ...(paths && { paths }) };
  }

  /** @param {number | null | undefined} place */
  #tell(place) {
    const step = typeof place === 'number' ? this.#steps[place] : undefined;
    this.#words.textContent = step ? stepInWords(step) : stepsInWords(this.#steps);
  }
}

/**
 * @param {uPlot} _plot
 * @param {number} first
 * @param {number} last
 * @returns {[number, number]}
 */
function wide(_plot, first, last) {
  const from = (first ?? 1) - 0.5;
  return [from, Math.max(from + FEWEST_STEPS, (last ?? 1) + 0.5)];
}
