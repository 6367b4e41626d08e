import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError, PlumblineError } from '../../../errors.js';
import { threefryKey } from '../../rng/threefry.js';
import type { RowContext } from '../../validity.js';
import { BAD_ROW_ID, candidateAt, deferredDraw } from './deferred.js';

const CONTEXT: RowContext = { site: 'deferred', phase: 'draft', step: 2 };
const FILTERS = { temperature: 1, topP: 0.95, topK: 20 };
const KEY = threefryKey(7n);

const rowOf = (fill: number, entries: Readonly<Record<number, number>> = {}): Float32Array => {
  const row = new Float32Array(64).fill(fill);
  for (const [id, value] of Object.entries(entries)) row[Number(id)] = value;
  return row;
};

test('a bad row is -1, gathers at 0, and cannot be read', () => {
  for (const row of [rowOf(Number.NaN), rowOf(0, { 0: Infinity }), rowOf(0, { 0: Number.NaN }), rowOf(-Infinity)]) {
    const draw = deferredDraw(row, FILTERS, KEY, CONTEXT);
    assert.equal(draw.id, BAD_ROW_ID);
    assert.equal(draw.gatherIndex, 0);
    assert.ok(draw.bad);
    assert.throws(() => draw.read(), NonFiniteLogitsError);
  }
});

test('without the verdict the same rows would have given ordinary ids', () => {
  assert.equal(candidateAt(rowOf(Number.NaN), FILTERS, KEY), 19);
  assert.equal(candidateAt(rowOf(0, { 0: Infinity }), FILTERS, KEY), 0);
  assert.equal(candidateAt(rowOf(-Infinity), FILTERS, KEY), 16);
});

test('a NaN outside the candidates is seen: the verdict is of the whole row', () => {
  const row = rowOf(-5, { 0: 9, 1: 8, 63: Number.NaN });
  assert.ok(deferredDraw(row, FILTERS, KEY, CONTEXT).bad);
});

test('a legal mask gives one of its finite ids', () => {
  const row = rowOf(-Infinity, { 1: 2, 3: 1 });
  for (let seed = 0n; seed < 50n; seed++) {
    const token = deferredDraw(row, FILTERS, threefryKey(seed), CONTEXT).read();
    assert.ok([1, 3].includes(token));
  }
});

test('greedy and k outside 1 < k < V have no deferred form', () => {
  const refused = (thrown: unknown): boolean =>
    thrown instanceof PlumblineError && thrown.code === 'invalid_distribution';
  for (const filters of [
    { ...FILTERS, temperature: 0 },
    { ...FILTERS, topK: 1 },
    { ...FILTERS, topK: 0 },
    { ...FILTERS, topK: 64 },
  ]) {
    assert.throws(() => candidateAt(rowOf(0), filters, KEY), refused);
  }
});
