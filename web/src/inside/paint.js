/**
 * The pool on a canvas, a square a page.
 * @import {BlockView, EngineSnapshot} from '../protocol.js'
 * @import {MapLayout} from './map_layout.js'
 */

import { placeOf } from './map_layout.js';
import { hueOf, pageKind } from './pages.js';

/** More owners of a page than this are not told apart by stripes. */
const MOST_STRIPES = 4;

/**
 * @typedef {object} Marks  What stands out.
 * @property {string | null} owner  A request: pages of others fade.
 * @property {number | null} page
 * @property {number[]} evicted
 * @property {number[]} reused
 * @property {number} strength  Of the marks of changes: 1 is new, 0 is gone.
 *
 * @typedef {{line: string, evicted: string, reused: string}} Palette
 */

/** @param {number} arrival */
export function colourOf(arrival) {
  return `hsl(${hueOf(arrival)} 62% 52%)`;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {MapLayout} layout
 * @param {EngineSnapshot} snapshot
 * @param {Marks} marks
 * @param {Palette} palette
 */
export function paintPool(canvas, layout, snapshot, marks, palette) {
  const ratio = window.devicePixelRatio;
  // Setting a size clears the canvas, so it is also how the last picture goes.
  canvas.width = Math.round(layout.width * ratio);
  canvas.height = Math.round(layout.height * ratio);
  const context = canvas.getContext('2d');
  if (!context) return;
  context.scale(ratio, ratio);
  paintFree(context, layout, palette.line);
  const arrivals = new Map([...snapshot.running, ...snapshot.waiting].map(({ id, arrival }) => [id, arrival]));
  for (const block of snapshot.blocks) {
    context.globalAlpha = marks.owner === null || block.owners.includes(marks.owner) ? 1 : 0.2;
    const colours = block.owners.slice(0, MOST_STRIPES).map((owner) => colourOf(arrivals.get(owner) ?? 0));
    paintPage(context, layout, block, colours, palette.line);
  }
  context.globalAlpha = marks.strength;
  outline(context, layout, marks.evicted, palette.evicted);
  outline(context, layout, marks.reused, palette.reused);
  context.globalAlpha = 1;
  if (marks.page !== null) outline(context, layout, [marks.page], palette.line);
}

/**
 * Every place, as if it were free.
 * @param {CanvasRenderingContext2D} context
 * @param {MapLayout} layout
 * @param {string} line
 */
function paintFree(context, layout, line) {
  context.strokeStyle = context.fillStyle = line;
  context.globalAlpha = 0.25;
  const { side } = layout;
  for (let id = 0; id < layout.count; id += 1) {
    const { x, y } = placeOf(layout, id);
    if (side > 4) context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    else context.fillRect(x, y, 1, 1);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {MapLayout} layout
 * @param {BlockView} block
 * @param {string[]} colours
 * @param {string} line
 */
function paintPage(context, layout, block, colours, line) {
  const { side } = layout;
  const { x, y } = placeOf(layout, block.id);
  if (pageKind(block) === 'cached') hatch(context, x, y, side, line);
  const width = side / colours.length;
  for (const [index, colour] of colours.entries()) {
    context.fillStyle = colour;
    context.fillRect(x + index * width, y, width, side);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {MapLayout} layout
 * @param {number[]} ids
 * @param {string} colour
 */
function outline(context, layout, ids, colour) {
  const line = layout.side > 8 ? 2 : 1;
  context.strokeStyle = colour;
  context.lineWidth = line;
  for (const id of ids) {
    const { x, y } = placeOf(layout, id);
    context.strokeRect(x + line / 2, y + line / 2, layout.side - line, layout.side - line);
  }
  context.lineWidth = 1;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} side
 * @param {string} line
 */
function hatch(context, x, y, side, line) {
  context.save();
  context.beginPath();
  context.rect(x, y, side, side);
  context.clip();
  context.strokeStyle = line;
  context.globalAlpha *= 0.6;
  context.beginPath();
  for (let offset = 0; offset < 2 * side; offset += 4) {
    context.moveTo(x + offset, y);
    context.lineTo(x + offset - side, y + side);
  }
  context.stroke();
  context.restore();
}
