export { Pageloom, storedModels } from './engine.js';
export { PageloomError } from './errors.js';
