/** Whether anything can be computed here, for a page and a worker alike. */

/** Why this browser can run nothing, in words; null where it can. */
export async function whyNoWebGpu() {
  if (await navigator.gpu?.requestAdapter()) return null;
  if (!self.isSecureContext) return 'WebGPU needs a secure page; open it over https or on localhost';
  if (navigator.gpu) return 'the browser has WebGPU and offers no adapter; see whether graphics acceleration is on';
  return 'this browser has no WebGPU; use a current Chrome, Edge, Safari or Firefox';
}
