/** Output tokens a second of the last busy second: the rate stands still while nothing runs. Pure. */

const SECONDS = 1;

export class RecentRate {
  #mark = { busy_seconds: 0, output_tokens: 0 };
  #rate = 0;

  reset() {
    this.#mark = { busy_seconds: 0, output_tokens: 0 };
    this.#rate = 0;
  }

  /** @param {{busy_seconds: number, output_tokens: number}} stats */
  update({ busy_seconds, output_tokens }) {
    const seconds = busy_seconds - this.#mark.busy_seconds;
    if (seconds >= SECONDS) {
      this.#rate = (output_tokens - this.#mark.output_tokens) / seconds;
      this.#mark = { busy_seconds, output_tokens };
    }
    return this.#rate;
  }
}
