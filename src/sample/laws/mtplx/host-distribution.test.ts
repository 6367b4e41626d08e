import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError } from '../../../errors.js';
import { Pcg64 } from '../../rng/pcg64.js';
import { checkRow, type RowContext } from '../../validity.js';
import { indexAt } from './choice.js';
import type { Filters } from './filters.js';
import { HostShaper } from './host-distribution.js';

const CONTEXT: RowContext = { site: 'ar_step', phase: 'decode', step: 0 };
const ROW = Float32Array.of(2, 1, 1, 0.5, -1, -Infinity, 1, 3);
const shaper = new HostShaper(ROW.length);

const CASES: { filters: Filters; ids: number[]; probs?: number[]; draws: number[] }[] = [
  { filters: { temperature: 1, topP: 0.95, topK: 20 }, ids: [0, 1, 2, 3, 6, 7], draws: [7, 7, 7, 1] },
  {
    filters: { temperature: 1, topP: 0.95, topK: 3 },
    ids: [0, 1, 7],
    probs: [0.2447284711, 0.0900305732, 0.6652409558],
    draws: [7, 7, 7, 0],
  },
  {
    filters: { temperature: 0.6, topP: 0.8, topK: 0 },
    ids: [0, 7],
    probs: [0.1588691049, 0.8411308951],
    draws: [7, 7, 7, 7],
  },
  { filters: { temperature: 1, topP: 0.5, topK: 20 }, ids: [7], probs: [1], draws: [7, 7, 7, 7] },
];

test('the check row: supports, probabilities and four draws with seed 7', () => {
  for (const { filters, ids, probs, draws } of CASES) {
    const valid = checkRow(ROW, CONTEXT);
    const shaped = shaper.shape(valid, filters, CONTEXT);
    assert.deepEqual(Array.from(shaped.ids), ids);
    probs?.forEach((p, i) => assert.ok(Math.abs(shaped.probs[i]! - p) < 5e-11));
    const random = new Pcg64(7n);
    assert.deepEqual(
      draws.map(() => shaped.draw(random)),
      draws,
    );
    const served = new Pcg64(7n);
    assert.deepEqual(
      draws.map(() => shaper.draw(valid, filters, CONTEXT, served)),
      draws,
    );
    assert.equal(served.stateHex, random.stateHex);
  }
});

test('choice: seed 7 on four ids', () => {
  const random = new Pcg64(7n);
  const ids = [3, 11, 42, 248319];
  const probs = Float64Array.of(0.1, 0.2, 0.3, 0.4);
  const drawn = Array.from({ length: 8 }, () => ids[indexAt(probs, random.nextDouble())]);
  assert.deepEqual(drawn, [248319, 248319, 248319, 11, 42, 248319, 3, 248319]);
});

test('a u that equals a step of the running sum belongs to the next id; zeros are never chosen', () => {
  assert.equal(indexAt(Float64Array.of(0.5, 0.5), 0.5), 1);
  assert.equal(indexAt(Float64Array.of(0, 0.5, 0, 0.5), 0), 1);
  assert.equal(indexAt(Float64Array.of(0.5, 0.5, 0), 1 - 2 ** -53), 1);
});

test('greedy is a one-hot at the first maximum and draws nothing', () => {
  const valid = checkRow(Float32Array.of(1, 3, 3, 0), CONTEXT);
  const random = new Pcg64(1n);
  const before = random.stateHex;
  const greedy = { temperature: 0, topP: 0.95, topK: 20 };
  assert.deepEqual(Array.from(new HostShaper(4).shape(valid, greedy, CONTEXT).ids), [1]);
  assert.equal(new HostShaper(4).draw(valid, greedy, CONTEXT, random), 1);
  assert.equal(random.stateHex, before);
});

test('one kept id still costs one double', () => {
  const random = new Pcg64(3n);
  shaper.draw(checkRow(ROW, CONTEXT), { temperature: 1, topP: 0.5, topK: 20 }, CONTEXT, random);
  const expected = new Pcg64(3n);
  expected.nextDouble();
  assert.equal(random.stateHex, expected.stateHex);
});

test('a row that overflows only by its temperature is an error with nothing to count', () => {
  const tiny = { temperature: 1e-310, topP: 0.95, topK: 20 };
  const valid = checkRow(Float32Array.of(1, 2, 3, 4), CONTEXT);
  assert.throws(
    () => new HostShaper(4).shape(valid, tiny, CONTEXT),
    (thrown) => thrown instanceof NonFiniteLogitsError && thrown.census.nanCount === 0 && thrown.census.infCount === 0,
  );
});

test('the working memory is not what a shaped distribution holds', () => {
  const filters = { temperature: 1, topP: 1, topK: 0 };
  const first = shaper.shape(checkRow(ROW, CONTEXT), filters, CONTEXT);
  const before = Array.from(first.probs);
  shaper.shape(checkRow(Float32Array.of(9, 9, 9, 9, 9, 9, 9, 9), CONTEXT), filters, CONTEXT);
  assert.deepEqual(Array.from(first.probs), before);
});
