/** Which adapter of the browser's computes, and what it offers. */

import { GpuError } from './gpu_error.js';

/** Products of matrices within subgroups: browsers have them with `--enable-unsafe-webgpu`. */
export const SUBGROUP_MATRICES = 'chromium-experimental-subgroup-matrix';
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|\bwarp\b|basic render/i;

/**
 * The adapter to compute on: the GPU, unless a class is asked for.
 * @param {'gpu' | 'software' | null} prefer
 */
export async function chooseAdapter(prefer) {
  if (!navigator.gpu) {
    const reason = isSecureContext
      ? 'this browser has no WebGPU, or has it turned off'
      : 'WebGPU needs a page from https:// or localhost';
    throw new GpuError('NotSupported', reason);
  }
  for (const forceFallbackAdapter of prefer === 'software' ? [true, false] : [false]) {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance', forceFallbackAdapter });
    if (adapter && (prefer === null || prefer === adapterClass(adapter.info))) return adapter;
  }
  throw new GpuError('NotSupported', `the browser offers no WebGPU adapter${prefer ? ` of the class ${prefer}` : ''}`);
}

/**
 * @param {GPUAdapterInfo} info
 * @returns {'gpu' | 'software'}
 */
export function adapterClass(info) {
  const words = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return info.isFallbackAdapter || SOFTWARE.test(words) ? 'software' : 'gpu';
}

/**
 * What Python knows of a device, or of an adapter of which a device would be asked for all that it offers.
 * @param {GPUAdapterInfo} info
 * @param {GPUSupportedFeatures} features
 * @param {Record<string, number>} limits
 */
export function describeAdapter(info, features, limits) {
  const matrices = features.has(SUBGROUP_MATRICES) ? /** @type {any} */ (info).subgroupMatrixConfigs : [];
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    description: info.description || info.device || `${info.vendor} ${info.architecture}`,
    adapterClass: adapterClass(info),
    features: [...features],
    limits,
    subgroupMinSize: features.has('subgroups') ? info.subgroupMinSize : 0,
    subgroupMaxSize: features.has('subgroups') ? info.subgroupMaxSize : 0,
    matrixShapes: Array.from(matrices, ({ componentType, resultComponentType, M, N, K }) => [
      componentType,
      resultComponentType,
      M,
      N,
      K,
    ]),
    languageFeatures: [...navigator.gpu.wgslLanguageFeatures],
  };
}

/**
 * The limits as a plain object.
 * @param {GPUSupportedLimits} limits
 */
export function limitsOf(limits) {
  /** @type {Record<string, number>} */
  const values = {};
  for (const name in limits) {
    const value = /** @type {any} */ (limits)[name];
    if (typeof value === 'number') values[name] = value;
  }
  return values;
}
