/** Where each page lies in the picture of the pool: squares in rows, as large as fit. Lengths in CSS pixels. Pure. */

const LARGEST = 26;
const SMALLEST = 3;
/** Higher pictures have smaller squares, down to the smallest. */
const HEIGHT = 360;

/** @typedef {{side: number, pitch: number, columns: number, width: number, height: number, count: number}} MapLayout */

/**
 * @param {number} count
 * @param {number} width
 * @returns {MapLayout}
 */
export function layoutOf(count, width) {
  for (let side = LARGEST; ; side -= 1) {
    const pitch = side + (side > 8 ? 2 : 1);
    const columns = Math.max(1, Math.floor(width / pitch));
    const height = Math.ceil(count / columns) * pitch;
    if (height <= HEIGHT || side === SMALLEST) return { side, pitch, columns, width, height, count };
  }
}

/**
 * @param {MapLayout} layout
 * @param {number} id
 */
export function placeOf({ pitch, columns }, id) {
  return { x: (id % columns) * pitch, y: Math.floor(id / columns) * pitch };
}

/**
 * The page at a point; null where there is none.
 * @param {MapLayout} layout
 * @param {number} x
 * @param {number} y
 */
export function pageAt({ pitch, columns, count }, x, y) {
  const column = Math.floor(x / pitch);
  const id = Math.floor(y / pitch) * columns + column;
  return x >= 0 && y >= 0 && column < columns && id < count ? id : null;
}
