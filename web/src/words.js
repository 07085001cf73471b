/**
 * Numbers and errors in plain words.
 * @import {ErrorObject} from './protocol.js'
 */

/** @param {number} bytes */
export function bytesInWords(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(1)} GB`;
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${Math.round(bytes / 1e3)} kB`;
}

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export function counted(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/**
 * How far a batch is: the rows with a whole answer, and apart from them those stopped and failed.
 * @param {{total: number, done: number, stopped: number, failed: number}} counts
 */
export function batchInWords({ total, done, stopped, failed }) {
  const apart = [stopped && `${stopped} stopped`, failed && `${failed} failed`].filter(Boolean);
  return [`${done} of ${counted(total, 'row')} done`, ...apart].join(', ');
}

/** @type {Record<string, [string, string]>} */
const BY_CODE = {
  no_webgpu: [
    'This browser has no WebGPU here',
    'In this tab Pageloom computes on the GPU through WebGPU. Models can run on a local worker too.',
  ],
  out_of_memory: [
    'The GPU has too little memory',
    'Choose less memory for the pages or a shorter context, take a smaller model, or close other tabs that use the GPU.',
  ],
  bad_model_file: ['That file is not a model that Pageloom reads', 'It takes whole, undamaged GGUF files.'],
  device_lost: ['The GPU went away', 'The driver was reset or the GPU process ended. Load the model again to go on.'],
  device_error: ['The GPU refused a command', 'Load the model again; if it happens again, this adapter cannot run it.'],
  not_supported: ['Not supported here', ''],
  capacity_exceeded: ['Too much at once', 'Ask for less.'],
  no_answer: ['The server does not answer', ''],
  invalid_api_key: [
    'The local worker needs its token',
    'It is the one that the worker was started with: of PAGELOOM_TOKEN, or in the file of --token-file.',
  ],
  queue_full: ['The local worker is busy', 'Try again once what it is doing has ended.'],
  engine_closed: ['The engine has stopped', 'Load the model again to go on.'],
};

/**
 * What of a request, or of a model, is more than there is room for, by the parameter.
 * @type {Record<string, [string, string]>}
 */
const CAPACITY_BY_PARAM = {
  prompt: ['Too long', 'Shorten the text or ask for fewer tokens.'],
  max_tokens: ['Too long', 'Ask for fewer tokens.'],
  kv_memory: ['Too little memory for the pages', 'Allow more memory, or take a smaller model.'],
  num_blocks: ['Too many pages for this GPU', 'Ask for fewer pages.'],
};

/**
 * @param {ErrorObject} error
 * @returns {{title: string, advice: string, detail: string}}
 */
export function errorInWords(error) {
  const capacity = error.code === 'capacity_exceeded' ? CAPACITY_BY_PARAM[error.param ?? ''] : undefined;
  const [title, advice] = capacity ?? BY_CODE[error.code ?? ''] ?? ['That did not work', ''];
  return { title, advice, detail: error.message };
}
