/**
 * @typedef {[number, number, number] | GPUBuffer} Grid  Workgroups a dimension, or the buffer whose first words they are.
 * @typedef {{pipeline: GPUComputePipeline, bindGroup: GPUBindGroup, grid: Grid}} BoundDispatch
 */
/** @typedef {[source: GPUBuffer, sourceOffset: number, target: GPUBuffer, targetOffset: number, size: number]} Copy */

/** Commands written down once, with their bind groups made, and encoded again each time they are submitted. */
export class Recording {
  #device;
  #label;
  /** @type {Array<{dispatches: BoundDispatch[]} | {copies: Copy[]}>} A compute pass each, or the copies between two. */
  #runs = [];
  /** @type {Map<GPUComputePipeline, GPUBindGroupLayout>} */
  #layouts = new Map();

  /**
   * @param {GPUDevice} device
   * @param {string} label
   */
  constructor(device, label) {
    this.#device = device;
    this.#label = label;
  }

  /**
   * Adds a dispatch of x * y * z workgroups; the i-th buffer is binding i of group 0.
   * @param {GPUComputePipeline} pipeline
   * @param {number} x
   * @param {number} y
   * @param {number} z
   * @param {string} label
   * @param {GPUBuffer[]} buffers
   */
  dispatch(pipeline, x, y, z, label, ...buffers) {
    this.#add(pipeline, [x, y, z], label, buffers);
  }

  /**
   * Adds a dispatch whose grid is what `grid` holds when it runs.
   * @param {GPUComputePipeline} pipeline
   * @param {GPUBuffer} grid
   * @param {string} label
   * @param {GPUBuffer[]} buffers
   */
  dispatchIndirect(pipeline, grid, label, ...buffers) {
    this.#add(pipeline, grid, label, buffers);
  }

  /**
   * @param {GPUComputePipeline} pipeline
   * @param {Grid} grid
   * @param {string} label
   * @param {GPUBuffer[]} buffers
   */
  #add(pipeline, grid, label, buffers) {
    const layout = this.#layouts.get(pipeline) ?? pipeline.getBindGroupLayout(0);
    this.#layouts.set(pipeline, layout);
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    const bindGroup = this.#device.createBindGroup({ label, layout, entries });
    const last = this.#runs.at(-1);
    if (last && 'dispatches' in last) last.dispatches.push({ pipeline, bindGroup, grid });
    else this.#runs.push({ dispatches: [{ pipeline, bindGroup, grid }] });
  }

  /**
   * Adds a copy; offsets and size in bytes, multiples of 4.
   * @param {Copy} copy
   */
  copy(...copy) {
    const last = this.#runs.at(-1);
    if (last && 'copies' in last) last.copies.push(copy);
    else this.#runs.push({ copies: [copy] });
  }

  get hasDispatch() {
    return this.#runs.some((run) => 'dispatches' in run);
  }

  /**
   * @param {GPUQuerySet} [querySet]  Gets the times at which the first dispatch begins and the last ends.
   * @returns {GPUCommandBuffer}
   */
  encode(querySet) {
    const encoder = this.#device.createCommandEncoder({ label: this.#label });
    const passes = this.#runs.filter((run) => 'dispatches' in run);
    for (const run of this.#runs) {
      if ('dispatches' in run) {
        encodePass(encoder, run.dispatches, querySet && timestamps(querySet, run === passes[0], run === passes.at(-1)));
      } else for (const copy of run.copies) encoder.copyBufferToBuffer(...copy);
    }
    return encoder.finish();
  }
}

/**
 * @param {GPUQuerySet} querySet
 * @param {boolean} isFirst
 * @param {boolean} isLast
 * @returns {GPUComputePassTimestampWrites | undefined}
 */
function timestamps(querySet, isFirst, isLast) {
  if (!isFirst && !isLast) return undefined;
  return {
    querySet,
    ...(isFirst && { beginningOfPassWriteIndex: 0 }),
    ...(isLast && { endOfPassWriteIndex: 1 }),
  };
}

/**
 * @param {GPUCommandEncoder} encoder
 * @param {BoundDispatch[]} dispatches
 * @param {GPUComputePassTimestampWrites} [timestampWrites]
 */
function encodePass(encoder, dispatches, timestampWrites) {
  const pass = encoder.beginComputePass(timestampWrites && { timestampWrites });
  let current = null;
  for (const { pipeline, bindGroup, grid } of dispatches) {
    if (pipeline !== current) pass.setPipeline(pipeline);
    current = pipeline;
    pass.setBindGroup(0, bindGroup);
    if (Array.isArray(grid)) pass.dispatchWorkgroups(...grid);
    else pass.dispatchWorkgroupsIndirect(grid, 0);
  }
  pass.end();
}
