export { Pageloom } from './engine.js';
export { PageloomError } from './errors.js';
export { inspect } from './inspection.js';
export { storedModels } from './models.js';
export { checkCases, listCases } from './operators/check_cases.js';
