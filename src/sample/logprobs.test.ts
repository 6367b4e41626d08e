import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LogprobReader } from './logprobs.js';
import { checkRow, type RowContext } from './validity.js';

const CONTEXT: RowContext = { site: 'ar_step', phase: 'decode', step: 0 };
const read = (row: number[], chosen: number, top: number) =>
  new LogprobReader().read(checkRow(Float32Array.from(row), CONTEXT), chosen, top);

test('the natural log of the softmax, in float64', () => {
  const row = [2, 1, 1, 0.5, -1, -Infinity, 1, 3];
  const mass = row.reduce((sum, x) => sum + Math.exp(x), 0);
  const { chosen, top } = read(row, 3, 8);
  assert.ok(Math.abs(chosen.logprob - (0.5 - Math.log(mass))) < 1e-14);
  const total = top.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0);
  assert.ok(Math.abs(total - 1) < 1e-14);
});

test('most likely first, equal ones by lower id, masked ids never', () => {
  const { top } = read([2, 1, 1, 0.5, -1, -Infinity, 1, 3], 7, 20);
  assert.deepEqual(
    top.map(({ tokenId }) => tokenId),
    [7, 0, 1, 2, 6, 3, 4],
  );
  assert.deepEqual(
    read([1, 1, 1, 1], 0, 2).top.map(({ tokenId }) => tokenId),
    [0, 1],
  );
  assert.deepEqual(read([1, 2], 0, 0).top, []);
});

test('finite also where every probability but one underflows', () => {
  const { chosen, top } = read([3e38, -3e38, 0], 1, 3);
  assert.equal(chosen.logprob, Math.fround(-3e38) - Math.fround(3e38));
  assert.ok(top.every(({ logprob }) => Number.isFinite(logprob)));
});
