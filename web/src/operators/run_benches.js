/**
 * The worker's part of a benchmark: Python measures, shape by shape.
 * @import {BenchEvent, BenchParams} from '../protocol.js'
 */

import { PageloomError } from '../errors.js';
import { bootPython } from '../python.js';

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
    const described = JSON.parse(session.describe());
    onEvent({ described });
    for (const index of described.shapes.keys()) {
      const answer = JSON.parse(await session.run(index));
      if ('error' in answer) throw new PageloomError(answer.error);
      onEvent({ rows: answer.rows });
    }
  } finally {
    session.close();
  }
  return null;
}
