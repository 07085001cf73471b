export { Pageloom } from './engine.js';
export { PageloomError } from './errors.js';
export { inspect } from './inspection.js';
export { storedModels } from './models.js';
export { runBench } from './operators/bench.js';
export { checkCases, listCases } from './operators/check_cases.js';
export { LocalServer } from './server/local_server.js';
