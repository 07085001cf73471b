/** What the page may do, as headers of every file that its server sends; the page's own markup repeats the policy. */

/** Where `pageloom serve` answers: always on this machine. */
const LOCAL_WORKERS = 'http://127.0.0.1:* http://localhost:*';

/** @type {Record<string, string>} */
const PAGE = {
  'default-src': "'none'",
  'script-src': "'self' 'wasm-unsafe-eval'",
  'style-src': "'self'",
  'img-src': "'self'",
  'worker-src': "'self'",
  // Models come from any https address that the user gives.
  'connect-src': `'self' https: ${LOCAL_WORKERS}`,
  'base-uri': "'none'",
  'form-action': "'none'",
};
/** A plain Pyodide fetches the bridge out of the wheel and evaluates it. */
const CONSOLE = { ...PAGE, 'script-src': "'self' 'unsafe-eval' blob:" };

/** @param {Record<string, string>} policy */
function written(policy) {
  return Object.entries(policy)
    .map((directive) => directive.join(' '))
    .join('; ');
}

/** The policy of each document, for its markup. */
export const POLICIES = { 'index.html': written(PAGE), 'console.html': written(CONSOLE) };

/**
 * Headers by file; those of "*" are for every other one. What only a header can say is added here.
 * @type {Record<string, Record<string, string>>}
 */
export const HEADERS = {
  '*': headers(POLICIES['index.html']),
  'console.html': headers(POLICIES['console.html']),
};

/** @param {string} policy */
function headers(policy) {
  return {
    'Content-Security-Policy': `${policy}; frame-ancestors 'none'`,
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Referrer-Policy': 'no-referrer',
    'X-Content-Type-Options': 'nosniff',
  };
}
