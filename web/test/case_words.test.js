import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorInFigures, progressInWords, reasonsInWords, reportAsJson } from '../src/operators/case_words.js';

/** @typedef {import('../src/protocol.js').CaseReport} CaseReport */

/**
 * @param {Partial<CaseReport>} fields
 * @returns {CaseReport}
 */
function report(fields) {
  return {
    name: 'paged/int8/decode',
    operator: 'paged_attention',
    feature: 'int8',
    outcome: 'passed',
    tier: 'direct',
    faster: {},
    worst_error: 0,
    budget: 0,
    share: 0,
    where: '',
    alone: '',
    detail: '',
    seconds: 0.1,
    ...fields,
  };
}

test('an error is shown beside its budget, and an infinite one as such', () => {
  assert.deepEqual(errorInFigures(report({})), { error: '0', budget: '' });
  assert.deepEqual(errorInFigures(report({ worst_error: 0.00031, budget: 0.0012 })), {
    error: '3.1e-4',
    budget: '1.2e-3',
  });
  assert.deepEqual(errorInFigures(report({ worst_error: null, budget: 0 })), { error: '∞', budget: '0' });
});

test('each faster tier is named with its reason', () => {
  assert.equal(reasonsInWords({}), '');
  assert.equal(reasonsInWords({ fast: 'no subgroups', faster: 'no f16' }), 'fast: no subgroups; faster: no f16');
});

test('progress counts what passed, and what did not where there is any', () => {
  const passed = report({});
  assert.equal(progressInWords([], 5), '0 of 5 cases passed');
  assert.equal(progressInWords([passed, passed], 5), '2 of 5 cases passed');
  assert.equal(
    progressInWords([passed, report({ outcome: 'failed' }), report({ outcome: 'skipped' })], 5),
    '1 of 5 cases passed, 1 failed, 1 skipped',
  );
});

test('the export has the adapter, the counts and every case', () => {
  const adapter = {
    vendor: 'v',
    architecture: 'a',
    description: 'd',
    adapter_class: /** @type {const} */ ('gpu'),
    f16: true,
  };
  const cases = [report({}), report({ name: 'paged/int4/decode', outcome: 'failed', share: null })];
  assert.deepEqual(JSON.parse(reportAsJson('tab', adapter, cases)), {
    backend: 'tab',
    adapter,
    counts: { passed: 1, failed: 1, skipped: 0 },
    cases,
  });
});
