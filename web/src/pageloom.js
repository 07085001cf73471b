export { Pageloom, storedModels } from './engine.js';
export { PageloomError } from './errors.js';
export { checkCases, listCases } from './operators/check_cases.js';
