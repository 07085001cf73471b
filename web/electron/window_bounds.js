/**
 * Where a window was, for the next time: kept in a file of the user's folder of the app.
 * @import {Rectangle} from 'electron'
 */

import { readFileSync, writeFileSync } from 'node:fs';

const USUAL = { width: 1280, height: 860 };
const SMALLEST = { width: 360, height: 480 };
/** So much of a window has to be on a screen for it to be moved by. */
const GRIP = 80;

/**
 * Bounds that can be seen: the saved ones, if enough of their title bar is on a screen, else the usual size.
 * @param {unknown} saved
 * @param {Rectangle[]} screens  What of each screen windows may cover.
 * @returns {Partial<Rectangle> & {width: number, height: number}}
 */
export function visibleBounds(saved, screens) {
  if (!isRectangle(saved)) return USUAL;
  const width = Math.max(saved.width, SMALLEST.width);
  const height = Math.max(saved.height, SMALLEST.height);
  const held = screens.some((screen) => {
    const right = Math.min(saved.x + width, screen.x + screen.width);
    const isWide = right - Math.max(saved.x, screen.x) >= GRIP;
    return isWide && saved.y >= screen.y && saved.y <= screen.y + screen.height - GRIP;
  });
  return held ? { x: saved.x, y: saved.y, width, height } : { width, height };
}

/**
 * @param {unknown} value
 * @returns {value is Rectangle}
 */
function isRectangle(value) {
  const fields = /** @type {Record<string, unknown>} */ (value ?? {});
  return ['x', 'y', 'width', 'height'].every((name) => Number.isInteger(fields[name]));
}

/**
 * @param {string} path
 * @returns {unknown}  Null where there is none, or a damaged one.
 */
export function readBounds(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return null;
  }
}

/**
 * @param {string} path
 * @param {Rectangle} bounds
 */
export function writeBounds(path, bounds) {
  try {
    writeFileSync(path, JSON.stringify(bounds));
  } catch {
    // A folder that cannot be written to is no reason against closing the window.
  }
}
