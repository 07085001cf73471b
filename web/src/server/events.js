/** Server-sent events of a response, as they come. */

/**
 * The data of each event, parsed; `[DONE]` ends them.
 * @param {Response} response
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* serverEvents(response) {
  let text = '';
  const chunks = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body);
  for await (const chunk of chunks.pipeThrough(new TextDecoderStream())) {
    const events = (text + chunk).split('\n\n');
    text = /** @type {string} */ (events.pop());
    for (const event of events) {
      const data = event.replace(/^data: /, '');
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}
