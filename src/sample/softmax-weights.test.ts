import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fillSoftmaxWeights } from './softmax-weights.js';

const weightsOf = (row: number[], temperature = 1, top = 0): Float64Array => {
  const weights = new Float64Array(row.length);
  fillSoftmaxWeights(Float64Array.from(row), temperature, top, weights);
  return weights;
};

test('within 2 ulp of e^v from 0 down to the last normal result', () => {
  const row = Array.from({ length: 40000 }, (_, i) => -i * 0.01771);
  weightsOf(row).forEach((weight, i) => {
    const truth = Math.exp(row[i]!);
    assert.ok(Math.abs(weight - truth) <= 2 * 2 ** -52 * truth, `e^${row[i]}`);
  });
});

test('e^0 is exactly 1; equal arguments are equal; masks and underflow are 0; subnormal results are kept', () => {
  assert.deepEqual(Array.from(weightsOf([0, -0, -Infinity, -746.5, -1e300])), [1, 1, 0, 0, 0]);
  const [a, b, c] = weightsOf([-745, -744.9, -709]);
  assert.ok(a! > 0 && a! <= b! && c! > 0);
  const same = weightsOf([-3.7, -3.7, -3.7]);
  assert.ok(same[0] === same[1] && same[1] === same[2]);
});

test('falls with its argument: no inversion between neighbours 1e-13 apart', () => {
  for (let v = 0; v > -50; v -= 0.0371) {
    const [high, low] = weightsOf([v, v - 1e-13 * Math.max(1, -v)]);
    assert.ok(high! >= low!, `${v}`);
  }
});
