import assert from 'node:assert/strict';
import { test } from 'node:test';
import { categorical, type CategoricalCall } from './categorical.js';
import { threefryKey } from './threefry.js';

const KEY = threefryKey(7n);
const DEFAULT: CategoricalCall = { kind: 'default' };
const filled = (value: number): number[] => new Array<number>(20).fill(value);

test('law B makes ordinary ids of invalid rows: the 19, 0 and 16 that the checks exist for', () => {
  const draw = (row: number[]): number => categorical(KEY, row, [1, 20], -1, DEFAULT).ids[0]!;
  assert.equal(draw(filled(Number.NaN)), 19);
  assert.equal(draw([Infinity, ...filled(0).slice(1)]), 0);
  assert.equal(draw(filled(-Infinity)), 16);
});

test('law A on the same rows gives 0', () => {
  const draw = (row: number[]): number => categorical(KEY, row, [20], -1, DEFAULT).ids[0]!;
  assert.equal(draw(filled(-Infinity)), 0);
  assert.equal(draw(filled(Number.NaN)), 0);
});

test('a masked entry is never drawn by either law', () => {
  const row = filled(-Infinity);
  row[4] = 1;
  row[9] = 0;
  for (let seed = 0n; seed < 200n; seed++) {
    for (const shape of [[20], [1, 20]]) {
      assert.ok([4, 9].includes(categorical(threefryKey(seed), row, shape, -1, DEFAULT).ids[0]!));
    }
  }
});

test('output shapes follow the call', () => {
  const row = filled(0);
  const shapeOf = (shape: number[], call: CategoricalCall, axis = -1): readonly number[] =>
    categorical(KEY, row, shape, axis, call).shape;
  assert.deepEqual(shapeOf([20], DEFAULT), []);
  assert.deepEqual(shapeOf([1, 20], DEFAULT), [1]);
  assert.deepEqual(shapeOf([20, 1], DEFAULT, 0), [1]);
  assert.deepEqual(shapeOf([2, 10], DEFAULT), [2]);
  assert.deepEqual(shapeOf([2, 10], { kind: 'num-samples', count: 3 }), [2, 3]);
  assert.deepEqual(shapeOf([2, 10], { kind: 'shape', shape: [4, 2] }), [4, 2]);
});
