/**
 * The pool on a canvas, a square a page.
 * @import {BlockView, EngineSnapshot} from '../protocol.js'
 */

import { hueOf, pageKind } from './pages.js';

const GAP = 2;
const LARGEST = 26;
const SMALLEST = 6;
const HEIGHT = 420;

/**
 * The largest square with which `count` of them fit; the picture grows past `HEIGHT` where even the smallest do not.
 * @param {number} count
 * @param {number} width
 */
function squareFor(count, width) {
  let side = LARGEST;
  while (side > SMALLEST && Math.ceil(count / columnsFor(side, width)) * (side + GAP) > HEIGHT) side -= 1;
  return side;
}

/**
 * @param {number} side
 * @param {number} width
 */
function columnsFor(side, width) {
  return Math.max(1, Math.floor(width / (side + GAP)));
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {EngineSnapshot} snapshot
 */
export function paintPool(canvas, snapshot) {
  const { blocks } = snapshot;
  const width = canvas.clientWidth;
  const side = squareFor(blocks.length, width);
  const columns = columnsFor(side, width);
  const height = Math.ceil(blocks.length / columns) * (side + GAP);
  const ratio = window.devicePixelRatio;
  // Setting a size clears the canvas, so it is also how the last picture goes.
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (!context) return;
  context.scale(ratio, ratio);
  const line = getComputedStyle(canvas).getPropertyValue('color');
  const arrivals = new Map([...snapshot.running, ...snapshot.waiting].map(({ id, arrival }) => [id, arrival]));
  for (const [index, block] of blocks.entries()) {
    const x = (index % columns) * (side + GAP);
    const y = Math.floor(index / columns) * (side + GAP);
    const colours = block.owners.map((owner) => `hsl(${hueOf(arrivals.get(owner) ?? 0)} 62% 52%)`);
    paintPage(context, block, colours, { x, y, side, line });
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {BlockView} block
 * @param {string[]} colours
 * @param {{x: number, y: number, side: number, line: string}} square
 */
function paintPage(context, block, colours, { x, y, side, line }) {
  const kind = pageKind(block);
  if (kind === 'owned' || kind === 'shared') {
    context.fillStyle = colours[0] ?? line;
    context.fillRect(x, y, side, side);
  }
  if (kind === 'shared') {
    context.fillStyle = colours[1] ?? line;
    fillTriangle(context, [x + side, y, x + side, y + side, x, y + side]);
  }
  if (kind === 'cached') hatch(context, x, y, side, line);
  if (kind === 'cached' || kind === 'free') {
    context.strokeStyle = line;
    context.globalAlpha = kind === 'free' ? 0.3 : 0.7;
    context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    context.globalAlpha = 1;
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {[number, number, number, number, number, number]} corners
 */
function fillTriangle(context, [ax, ay, bx, by, cx, cy]) {
  context.beginPath();
  context.moveTo(ax, ay);
  context.lineTo(bx, by);
  context.lineTo(cx, cy);
  context.fill();
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
  context.globalAlpha = 0.55;
  context.beginPath();
  for (let offset = 0; offset < 2 * side; offset += 5) {
    context.moveTo(x + offset, y);
    context.lineTo(x + offset - side, y + side);
  }
  context.stroke();
  context.restore();
}
