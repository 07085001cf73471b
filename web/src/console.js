/** A Python console on the page itself: the engine as a plain Pyodide finds it, with no worker and no bridge passed in. */

import { byId } from './dom.js';
import { bootPython } from './python.js';

const EXAMPLE = `import pageloom
model = await pageloom.load("model/SmolLM2-135M-Instruct.Q4_1.gguf")
for answer in await model.generate(["What is gravity?", "Name a colour."], max_tokens=16):
    print(answer.text)`;

const output = byId('output');
const input = /** @type {HTMLTextAreaElement} */ (byId('input'));
const run = /** @type {HTMLButtonElement} */ (byId('run'));

/** @param {string} text */
function print(text) {
  output.append(text);
  output.scrollTop = output.scrollHeight;
}

input.defaultValue = EXAMPLE;
print('Starting Python\n');
const python = await bootPython(new URL('.', document.baseURI));
python.setStdout({ batched: (line) => print(`${line}\n`) });
python.setStderr({ batched: (line) => print(`${line}\n`) });
print('Ready\n');
run.disabled = false;

byId('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  run.disabled = true;
  print(`>>> ${input.value.replaceAll('\n', '\n... ')}\n`);
  try {
    const value = await python.runPythonAsync(input.value);
    if (value !== undefined) print(`${value}\n`);
  } catch (error) {
    print(`${/** @type {Error} */ (error).message}\n`);
  }
  run.disabled = false;
});
