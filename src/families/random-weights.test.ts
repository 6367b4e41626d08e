import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toFloat32 } from '../weights/convert.js';
import { RandomWeights } from './random-weights.js';

function values(random: RandomWeights, name: string, shape: readonly number[]): Float32Array {
  const stored = new Uint16Array(shape.reduce((a, b) => a * b, 1));
  random.fill(name, shape, stored);
  const wide = new Float32Array(stored.length);
  toFloat32('BF16', new Uint8Array(stored.buffer), wide);
  return wide;
}

const rootMeanSquare = (x: Float32Array): number => Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length);

test('equal seeds and names give equal values; another seed or another name gives others', () => {
  const first = values(new RandomWeights(7), 'a', [64, 32]);
  assert.deepEqual(values(new RandomWeights(7), 'a', [64, 32]), first);
  for (const other of [values(new RandomWeights(8), 'a', [64, 32]), values(new RandomWeights(7), 'b', [64, 32])]) {
    const equal = other.filter((value, i) => value === first[i]).length;
    assert.ok(equal < 20, `${equal} of ${first.length} values are the same`);
  }
});

test('values are normal, and spread by the fan-in: the last size of a matrix or a filter, a tenth for vectors', () => {
  for (const [shape, deviation] of [
    [[512, 256], 1 / 16],
    [[8, 64, 256], 1 / 16],
    [[16384, 1, 4], 1 / 2],
    [[65536], 0.1],
  ] as const) {
    const x = values(new RandomWeights(1), 'w', shape);
    const measured = rootMeanSquare(x) / deviation;
    assert.ok(Math.abs(measured - 1) < 0.02, `[${shape.join(', ')}]: ${measured} times the expected spread`);
    const mean = x.reduce((sum, v) => sum + v, 0) / x.length / deviation;
    assert.ok(Math.abs(mean) < 0.02, `mean ${mean}`);
    const within = x.filter((v) => Math.abs(v) < deviation).length / x.length;
    assert.ok(Math.abs(within - 0.683) < 0.02, `${within} within one deviation`);
  }
});

test('no value is NaN, infinite or subnormal, and an odd count is filled to its end', () => {
  const x = values(new RandomWeights(3), 'w', [257, 255]);
  assert.ok(x.every((v) => Number.isFinite(v) && (v === 0 || Math.abs(v) > 1.2e-38)));
  assert.notEqual(x.at(-1), 0);
});
