/**
 * The worker's part of a benchmark: Python measures, shape by shape.
 * @import {BenchEvent, BenchParams} from '../protocol.js'
 */

import { invalidArgument, PageloomError } from '../errors.js';
import { bootPython } from '../python.js';
import { hasWords } from './name_filter.js';

/**
 * The Python side, `pageloom.tab.benches`.
 * @typedef {object} BenchSession
 * @property {() => string} describe
 * @property {(index: number) => Promise<string>} run
 * @property {() => void} close
 */

/**
 * @param {BenchParams} params
 * @param {typeof import('../bridge.js')} bridge
 * @param {URL} root  The page's folder.
 * @param {(event: BenchEvent) => void} onEvent
 */
export async function runBenches(params, bridge, root, onEvent) {
  const python = await bootPython(root, (done, total) => onEvent({ stage: 'python', done, total }));
  const opened = await python.pyimport('pageloom.tab.benches').start(bridge, JSON.stringify(params));
  if (typeof opened === 'string') throw new PageloomError(JSON.parse(opened));
  /** @type {BenchSession} */
  const session = opened;
  try {
    const told = JSON.parse(session.describe());
    /** @type {string[]} */
    const offered = told.shapes;
    const shapes = offered.filter(hasWords(params.shapes));
    if (shapes.length === 0) {
      const message = `no shape has ${params.shapes} in its name; there is ${offered.join(', ')}`;
      throw invalidArgument(message, 'shapes');
    }
    onEvent({ described: { ...told, shapes } });
    for (const shape of shapes) {
      const answer = JSON.parse(await session.run(offered.indexOf(shape)));
      if ('error' in answer) throw new PageloomError(answer.error);
      onEvent({ rows: answer.rows });
    }
  } finally {
    session.close();
  }
  return null;
}
