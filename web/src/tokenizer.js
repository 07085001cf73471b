import { Tokenizer } from '@huggingface/tokenizers';

/**
 * Plain text to token ids, by the library that reads `tokenizer.json`. Special tokens are split off by the Python side.
 * @param {string} tokenizerJson
 * @returns {{encode: (text: string) => number[]}}
 */
export function createTokenizer(tokenizerJson) {
  const tokenizer = new Tokenizer(JSON.parse(tokenizerJson), {});
  return { encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids };
}
