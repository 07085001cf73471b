/** Model files that the system hands to the app: by a double click, or on its command line. */

import { resolve } from 'node:path';

/**
 * The model files of a command line.
 * @param {string[]} argv  With the program first.
 * @param {string} folder  What relative paths are relative to.
 */
export function modelFiles(argv, folder) {
  return argv
    .slice(1)
    .filter((argument) => !argument.startsWith('-') && argument.toLowerCase().endsWith('.gguf'))
    .map((argument) => resolve(folder, argument));
}
