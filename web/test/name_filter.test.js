import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasWords, patternOf } from '../src/operators/name_filter.js';

test('a name has the words of a text whatever their order and case', () => {
  const names = ['paged/int4/decode', 'paged/int8/decode', 'decode T=512 16/8 int4'];
  assert.deepEqual(names.filter(hasWords(' DECODE  int4 ')), [names[0], names[2]]);
  assert.deepEqual(names.filter(hasWords('')), names);
  assert.deepEqual(names.filter(hasWords('t=512')), [names[2]]);
});

test('the pattern of a text takes its characters as they are, in either case', () => {
  assert.equal(patternOf(' \n'), null);
  assert.equal(patternOf('T=5 int8'), '*[tT]=5*[iI][nN][tT]8*');
  assert.equal(patternOf('a*[?ß'), '*[aA][*][[][?]ß*');
});
