/** Readback: staging buffers by size class (powers of two) that are kept and used again. */

const SMALLEST = 256;
const KEPT_PER_SIZE = 4;

/** @typedef {{buffer: GPUBuffer, mapped: Promise<void>}} Staged  A copy on its way. */

export class StagingPool {
  #device;
  /** @type {Map<number, GPUBuffer[]>} */
  #free = new Map();

  /** @param {GPUDevice} device */
  constructor(device) {
    this.#device = device;
  }

  /** How many buffers lie idle. */
  get size() {
    return [...this.#free.values()].reduce((total, buffers) => total + buffers.length, 0);
  }

  /**
   * Queues the copy of a range (offset a multiple of 4) and asks for its mapping.
   * @param {GPUBuffer} source
   * @param {number} offset
   * @param {number} size
   * @returns {Staged}
   */
  copy(source, offset, size) {
    const copied = Math.max(4, Math.ceil(size / 4) * 4);
    const sizeClass = Math.max(SMALLEST, 2 ** Math.ceil(Math.log2(copied)));
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    const buffer = this.#free.get(sizeClass)?.pop() ?? this.#device.createBuffer({ size: sizeClass, usage });
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(source, offset, buffer, 0, copied);
    this.#device.queue.submit([encoder.finish()]);
    return { buffer, mapped: buffer.mapAsync(GPUMapMode.READ, 0, copied) };
  }

  /**
   * The first `size` bytes of a mapped copy, whose buffer goes back to the pool.
   * @param {Staged} staged
   * @param {number} size
   */
  take({ buffer }, size) {
    const bytes = new Uint8Array(buffer.getMappedRange(0, Math.max(4, Math.ceil(size / 4) * 4))).slice(0, size);
    buffer.unmap();
    const free = this.#free.get(buffer.size) ?? [];
    this.#free.set(buffer.size, free);
    if (free.length < KEPT_PER_SIZE) free.push(buffer);
    else buffer.destroy();
    return bytes;
  }
}
