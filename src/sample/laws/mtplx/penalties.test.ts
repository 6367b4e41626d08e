import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError } from '../../../errors.js';
import { roundBf16 } from '../../../numerics/rounding.js';
import type { RowContext } from '../../validity.js';
import { laneOf, type Lane } from './filters.js';
import { clampPenalty, type Penalties, type RowDtype } from './penalties.js';
import { RowProcessor } from './row-processor.js';

const CONTEXT: RowContext = { site: 'ar_step', phase: 'decode', step: 0 };
const NONE: Penalties = { presence: 0, frequency: 0, counts: new Map() };

function process(
  row: number[],
  penalties: Partial<Penalties>,
  { lane = 'sparse', dtype = 'f32', tokenizerSize }: { lane?: Lane; dtype?: RowDtype; tokenizerSize?: number } = {},
): number[] {
  const shape = { vocabSize: row.length, tokenizerSize: tokenizerSize ?? row.length, dtype };
  const raw = Float32Array.from(row);
  const processed = new RowProcessor(shape).process(raw, { ...NONE, ...penalties }, lane, CONTEXT);
  assert.deepEqual(Array.from(raw), row.map(Math.fround), 'the raw row is not written');
  return Array.from(processed.row);
}

test('lanes follow from the settings alone', () => {
  assert.equal(laneOf({ temperature: 0, topP: 1, topK: 0 }), 'greedy');
  assert.equal(laneOf({ temperature: -1, topP: 1, topK: 5 }), 'greedy');
  assert.equal(laneOf({ temperature: 1, topP: 1, topK: 5 }), 'sparse');
  assert.equal(laneOf({ temperature: 1, topP: 0.5, topK: 0 }), 'dense');
});

test('frequency times count, plus presence once; the overlay after', () => {
  const counts = new Map([[1, 3]]);
  const overlay = [[0, 0.5]] as const;
  assert.deepEqual(process([1, 2, 3], { presence: 0.5, frequency: 0.25, counts, overlay }), [0.5, 0.75, 3]);
});

test('each lane rounds where it says', () => {
  const counts = new Map([[0, 1]]);
  const row = [1.1];
  const l = Math.fround(1.1);
  assert.deepEqual(process(row, { presence: 0.1, counts }, { lane: 'dense' }), [l - 0.1]);
  assert.deepEqual(process(row, { presence: 0.1, counts }), [Math.fround(l - Math.fround(0.1))]);
  const narrow = roundBf16(1.1);
  assert.deepEqual(process([narrow], { presence: 0.1, counts }, { dtype: 'bf16' }), [
    roundBf16(Math.fround(narrow - roundBf16(0.1))),
  ]);
  assert.deepEqual(process(row, { presence: 0.1, counts }, { lane: 'greedy' }), [Math.fround(l - Math.fround(0.1))]);
});

test('counts and overlay are two roundings, not one', () => {
  const counts = new Map([[0, 1]]);
  const [a, b] = [0.1, 0.3];
  const l = Math.fround(1.1);
  const twice = Math.fround(Math.fround(l - Math.fround(a)) - Math.fround(b));
  assert.notEqual(twice, Math.fround(l - Math.fround(a + b)), 'the test needs a case that tells them apart');
  assert.deepEqual(process([1.1], { presence: a, counts, overlay: [[0, b]] }), [twice]);
});

test('nothing active: the same row, not a copy', () => {
  const raw = Float32Array.of(1, 2);
  const processor = new RowProcessor({ vocabSize: 2, tokenizerSize: 2, dtype: 'f32' });
  assert.equal(processor.process(raw, { ...NONE, presence: 1 }, 'sparse', CONTEXT).row, raw);
});

test('ids beyond the tokenizer are masked after the raw row was checked whole', () => {
  assert.deepEqual(process([1, 2, 9], {}, { tokenizerSize: 2 }), [1, 2, -Infinity]);
  assert.throws(() => process([1, 2, Number.NaN], {}, { tokenizerSize: 2 }), NonFiniteLogitsError);
});

test('a mask or overlay that leaves nothing valid is an error with the census of the processed row', () => {
  const census = (infCount: number, vocabSize: number) => (thrown: unknown) =>
    thrown instanceof NonFiniteLogitsError &&
    thrown.census.infCount === infCount &&
    thrown.census.nanCount === 0 &&
    thrown.census.vocabSize === vocabSize;
  assert.throws(() => process([-Infinity, -Infinity, 9], {}, { tokenizerSize: 2 }), census(3, 3));
  assert.throws(() => process([3e38, 1], { overlay: [[0, -3e38]] }), census(1, 2));
});

test('clamp', () => {
  assert.deepEqual([-3, -2, 0.5, 7].map(clampPenalty), [-2, -2, 0.5, 2]);
});
