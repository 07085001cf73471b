/**
 * The worker's part of a check: case files in, reports out. Python computes and compares.
 * @import {CheckParams, CheckEvent} from '../protocol.js'
 */

import { PageloomError } from '../errors.js';
import { bootPython } from '../python.js';

/**
 * The Python side, `pageloom.tab.operators`.
 * @typedef {object} CheckSession
 * @property {() => string} describe
 * @property {(data: Uint8Array) => Promise<string>} run
 * @property {() => void} close
 */

/**
 * @param {CheckParams} params
 * @param {typeof import('../bridge.js')} bridge
 * @param {URL} root  The page's folder.
 * @param {(event: CheckEvent) => void} onEvent
 */
export async function runCases({ files, ...options }, bridge, root, onEvent) {
  const python = await bootPython(root, (done, total) => onEvent({ stage: 'python', done, total }));
  const opened = await python.pyimport('pageloom.tab.operators').start(bridge, JSON.stringify(options));
  if (typeof opened === 'string') throw new PageloomError(JSON.parse(opened));
  /** @type {CheckSession} */
  const session = opened;
  try {
    onEvent({ adapter: JSON.parse(session.describe()) });
    let next = files[0] && fetchCase(files[0].url);
    for (const index of files.keys()) {
      const data = await next;
      const following = files[index + 1];
      next = following && fetchCase(following.url); // fetched while this one is computed
      if (!data) break;
      const answer = JSON.parse(await session.run(data));
      if ('error' in answer) throw new PageloomError(answer.error);
      onEvent({ report: answer.report });
    }
  } finally {
    session.close();
  }
  return null;
}

/** @param {string} url */
function fetchCase(url) {
  const fetched = fetch(url).then(async (response) => {
    if (!response.ok) throw new Error(`the page's server has no ${url} (HTTP ${response.status})`);
    return new Uint8Array(await response.arrayBuffer());
  });
  fetched.catch(() => {}); // told when it is its turn
  return fetched;
}
