/**
 * WebGPU for Python in the browser: one object a device, whose methods each do as much as one call across the language
 * border can carry. Python holds buffers, pipelines and recordings as they are and hands them back.
 *
 * Loading this file touches nothing of the browser's; it serves a page and a worker alike.
 */

import { chooseAdapter, describeAdapter, limitsOf, SUBGROUP_MATRICES } from './gpu_adapter.js';
import { GpuError } from './gpu_error.js';
import { Recording } from './recording.js';
import { StagingPool } from './staging.js';

const USEFUL_FEATURES = ['shader-f16', 'subgroups', 'timestamp-query', SUBGROUP_MATRICES];
const UPLOAD_CHUNK = 4 * 1024 * 1024;

/**
 * @typedef {object} RangedSource  What the bytes of a model are read from.
 * @property {number} size
 * @property {(offset: number, length: number) => Promise<ArrayBuffer>} read
 *
 * @typedef {object} GpuOptions
 * @property {'gpu' | 'software' | null} [prefer]  Allows only adapters of that class.
 * @property {Record<string, number>} [limits]  Lowers limits by name; the browser enforces none below WebGPU's defaults.
 * @property {string[]} [withoutFeatures]  Not asked for.
 */

/**
 * Opens a device with everything its adapter offers.
 * @param {GpuOptions} [options]
 * @returns {Promise<GpuDevice>}
 */
export async function openGpu({ prefer = null, limits = {}, withoutFeatures = [] } = {}) {
  const adapter = await chooseAdapter(prefer);
  /** @type {Record<string, number>} */
  const offered = limitsOf(adapter.limits);
  for (const [name, value] of Object.entries(limits)) {
    const most = offered[name];
    if (most === undefined) throw new GpuError('InvalidArgument', `${name} is no WebGPU limit`);
    if (name.startsWith('max') && !(value > 0 && value <= most)) {
      throw new GpuError('InvalidArgument', `${name} = ${value}: the adapter allows 1 to ${most}`);
    }
  }
  const requiredFeatures = /** @type {GPUFeatureName[]} */ (
    USEFUL_FEATURES.filter((name) => adapter.features.has(name) && !withoutFeatures.includes(name))
  );
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits: { ...offered, ...limits } });
  return new GpuDevice(device, adapter.info, limits);
}

export class GpuDevice {
  #device;
  #queue;
  #staging;
  /** @type {string | null} */
  #lost = null;
  /** @type {Set<(error: GpuError) => void>} Rejects what waits for the device. */
  #waiting = new Set();
  /** @type {GpuError[]} Refusals that no caller has heard of yet. */
  #faults = [];
  /** @type {{HEAPU8: Uint8Array<ArrayBuffer>} | null} */
  #memory = null;

  /**
   * @param {GPUDevice} device
   * @param {GPUAdapterInfo} info
   * @param {Record<string, number>} lowered
   */
  constructor(device, info, lowered) {
    this.#device = device;
    this.#queue = device.queue;
    this.#staging = new StagingPool(device);
    this.info = describeAdapter(info, device.features, { ...limitsOf(device.limits), ...lowered });
    /** Resolves, with the reason, once the device is lost or closed. */
    this.lost = device.lost.then(({ message, reason }) => this.#lose(message || reason));
    device.addEventListener('uncapturederror', ({ error }) => this.#faults.push(refusal(error)));
  }

  /**
   * The module of the Pyodide whose memory `write` takes addresses in.
   * @param {{HEAPU8: Uint8Array<ArrayBuffer>}} module
   */
  useMemory(module) {
    this.#memory = module;
  }

  /**
   * @param {number} size  Bytes, a multiple of 4.
   * @param {string} label
   */
  createBuffer(size, label) {
    this.#checkPresent();
    this.#device.pushErrorScope('out-of-memory');
    this.#device.pushErrorScope('validation');
    const { STORAGE, COPY_SRC, COPY_DST, INDIRECT } = GPUBufferUsage;
    const buffer = this.#device.createBuffer({ size, label, usage: STORAGE | COPY_SRC | COPY_DST | INDIRECT });
    for (const scope of [this.#device.popErrorScope(), this.#device.popErrorScope()]) {
      // Only a lost device rejects, and it says so itself.
      scope.then((error) => error && this.#faults.push(refusal(error))).catch(() => {});
    }
    return buffer;
  }

  /**
   * Writes from Python's memory; the bytes up to the next multiple of 4 become zeros.
   * @param {GPUBuffer} buffer
   * @param {number} offset
   * @param {number} address
   * @param {number} length
   */
  write(buffer, offset, address, length) {
    this.#checkPresent();
    if (!this.#memory) throw new GpuError('InvalidArgument', 'useMemory() comes before write()');
    // Taken afresh each time: the memory moves when it grows.
    this.#writeBytes(buffer, offset, this.#memory.HEAPU8, address, length);
  }

  /**
   * @param {GPUBuffer} buffer
   * @param {number} offset
   * @param {Uint8Array<ArrayBuffer>} bytes
   * @param {number} start
   * @param {number} length
   */
  #writeBytes(buffer, offset, bytes, start, length) {
    const aligned = length - (length % 4);
    if (aligned) this.#queue.writeBuffer(buffer, offset, bytes, start, aligned);
    if (aligned === length) return;
    const tail = new Uint8Array(4);
    tail.set(bytes.subarray(start + aligned, start + length));
    this.#queue.writeBuffer(buffer, offset + aligned, tail);
  }

  /**
   * Copies a range of a source into a buffer without holding more of it than a few chunks.
   * @param {GPUBuffer} buffer
   * @param {number} offset
   * @param {RangedSource} source
   * @param {number} sourceOffset
   * @param {number} length
   */
  async upload(buffer, offset, source, sourceOffset, length) {
    for (let start = 0; start < length; start += UPLOAD_CHUNK) {
      const size = Math.min(UPLOAD_CHUNK, length - start);
      const chunk = await source.read(sourceOffset + start, size);
      this.#checkPresent();
      this.#writeBytes(buffer, offset + start, new Uint8Array(chunk), 0, size);
      await this.idle();
    }
  }

  /**
   * @param {string} code  WGSL with the entry point `main`.
   * @param {string} label
   * @returns {Promise<GPUComputePipeline>}
   */
  async createPipeline(code, label) {
    this.#checkPresent();
    this.#device.pushErrorScope('validation');
    const module = this.#device.createShaderModule({ code, label });
    const scope = this.#device.popErrorScope();
    const error = await this.#whilePresent(scope);
    if (error) throw new GpuError('DeviceError', `shader ${label} does not compile: ${error.message}`);
    const descriptor = { label, layout: /** @type {const} */ ('auto'), compute: { module, entryPoint: 'main' } };
    return this.#whilePresent(this.#device.createComputePipelineAsync(descriptor));
  }

  /**
   * An empty recording, to be filled and then submitted as often as wanted.
   * @param {string} label
   */
  startRecording(label) {
    this.#checkPresent();
    return new Recording(this.#device, label);
  }

  /** @param {Recording} recording */
  submit(recording) {
    this.#checkPresent();
    this.#queue.submit([recording.encode()]);
  }

  /**
   * Submits a recording. Resolves to its seconds by the GPU's clock, or -1 where that cannot be told.
   * @param {Recording} recording
   */
  async time(recording) {
    if (!this.#device.features.has('timestamp-query') || !recording.hasDispatch) {
      this.submit(recording);
      return -1;
    }
    this.#checkPresent();
    const querySet = this.#device.createQuerySet({ type: 'timestamp', count: 2 });
    const { QUERY_RESOLVE, COPY_SRC } = GPUBufferUsage;
    const buffer = this.#device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC });
    const encoder = this.#device.createCommandEncoder();
    encoder.resolveQuerySet(querySet, 0, 2, buffer, 0);
    this.#queue.submit([recording.encode(querySet), encoder.finish()]);
    const bytes = await this.read(buffer, 0, 16);
    querySet.destroy();
    buffer.destroy();
    const nanoseconds = new BigUint64Array(bytes.buffer, bytes.byteOffset, 2);
    return Number(/** @type {bigint} */ (nanoseconds[1]) - /** @type {bigint} */ (nanoseconds[0])) * 1e-9;
  }

  /**
   * The bytes of a range after all that was submitted before this call; the copy is queued by the call itself.
   * @param {GPUBuffer} buffer
   * @param {number} offset
   * @param {number} size
   * @returns {Promise<Uint8Array>}
   */
  read(buffer, offset, size) {
    this.#checkPresent();
    const staged = this.#staging.copy(buffer, offset, size);
    return this.#whilePresent(staged.mapped.then(() => this.#staging.take(staged, size)));
  }

  /** Waits for what was created so far and throws the first refusal. */
  async settle() {
    this.#checkPresent();
    this.#device.pushErrorScope('validation');
    // Answers come in order, and what no scope caught is told as an event, a task later.
    await this.#whilePresent(this.#device.popErrorScope().then(() => new Promise((resolve) => setTimeout(resolve))));
  }

  /** Waits until everything submitted so far has run. */
  async idle() {
    this.#checkPresent();
    await this.#whilePresent(this.#queue.onSubmittedWorkDone());
  }

  /** Destroys the device and everything on it. */
  close() {
    this.#lose('it was closed');
    this.#device.destroy();
  }

  /** Counts that stay flat from step to step; for tests. */
  get counts() {
    return { waiting: this.#waiting.size, staging: this.#staging.size };
  }

  /**
   * @param {string} reason
   * @returns {string}  The one given first.
   */
  #lose(reason) {
    if (this.#lost !== null) return this.#lost;
    this.#lost = reason;
    for (const reject of this.#waiting) reject(this.#gone());
    this.#waiting.clear();
    return reason;
  }

  #gone() {
    return new GpuError('DeviceLost', `the WebGPU device is gone: ${this.#lost}; open another one`);
  }

  #checkPresent() {
    if (this.#lost !== null) throw this.#gone();
  }

  /**
   * The promise's result, unless the device is lost first or a command before it was refused.
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>}
   */
  #whilePresent(promise) {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      promise
        .then((value) => {
          const [fault] = this.#faults.splice(0); // the others mostly follow from the first
          if (fault) reject(fault);
          else resolve(value);
        })
        .catch((error) => {
          // A browser may reject what waited before it says that the device is lost.
          if (error.name === 'AbortError') this.#lose(error.message);
          reject(this.#lost === null ? new GpuError('DeviceError', error.message) : this.#gone());
        })
        .finally(() => this.#waiting.delete(reject));
    });
  }
}

/** @param {GPUError} error */
function refusal(error) {
  const kind = error instanceof GPUOutOfMemoryError ? 'OutOfMemory' : 'DeviceError';
  return new GpuError(kind, `the device refuses a command: ${error.message}`);
}
