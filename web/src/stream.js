/**
 * A queue that is filled by callbacks and read with `for await`.
 * @template Item
 * @typedef {AsyncIterable<Item> & {push: (item: Item) => void, end: () => void, fail: (error: unknown) => void}} Stream
 */

/**
 * @template Item
 * @returns {Stream<Item>}
 */
export function streamOf() {
  /** @type {Item[]} */
  let items = [];
  let ended = false;
  /** @type {{error: unknown} | null} */
  let failure = null;
  let wake = () => {};

  async function* read() {
    for (;;) {
      const ready = items;
      items = [];
      yield* ready;
      if (items.length > 0) continue;
      if (failure) throw failure.error;
      if (ended) return;
      await new Promise((resolve) => {
        wake = () => resolve(undefined);
      });
    }
  }

  return {
    push(item) {
      items.push(item);
      wake();
    },
    end() {
      ended = true;
      wake();
    },
    fail(error) {
      failure = { error };
      wake();
    },
    [Symbol.asyncIterator]: read,
  };
}
