/**
 * Chromium's switches for WebGPU. Linux offers no GPU to it without them; Windows and macOS do.
 * @param {Pick<import('electron').CommandLine, 'appendSwitch'>} commandLine
 * @param {string} platform
 */
export function setGpuFlags(commandLine, platform) {
  // A tab's engine may have more buffers than a page that only draws.
  commandLine.appendSwitch('disable-gpu-process-crash-limit');
  if (platform !== 'linux') return;
  commandLine.appendSwitch('enable-unsafe-webgpu');
  commandLine.appendSwitch('enable-features', 'Vulkan');
  commandLine.appendSwitch('use-angle', 'vulkan');
}
