import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { pairwiseSum, pairwiseSumSparse } from './pairwise-sum.js';

test('ten tenths: the eight running sums are joined before the rest', () => {
  const tenths = new Float64Array(10).fill(0.1);
  assert.equal(pairwiseSum(tenths), 0.8 + 0.1 + 0.1);
  assert.equal(pairwiseSum(tenths.subarray(0, 7)), 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1);
});

test('above 128 terms the left half is rounded down to a multiple of 8', () => {
  const values = Float64Array.from({ length: 201 }, (_, i) => 1 / (i + 1));
  assert.equal(pairwiseSum(values), pairwiseSum(values, 0, 96) + pairwiseSum(values, 96, 105));
});

test('the sparse sum has the bits of the full row with zeros in place', () => {
  const entry = fc.tuple(fc.integer({ min: 0, max: 1999 }), fc.double({ min: 0, max: 1, noNaN: true }));
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 300 }), fc.integer({ min: 2000, max: 2300 }), (entries, rowLength) => {
      const row = new Float64Array(rowLength);
      for (const [id, value] of entries) row[id] = value;
      const ids = Int32Array.from([...new Set(entries.map(([id]) => id))].sort((a, b) => a - b));
      const sparse = pairwiseSumSparse(
        ids,
        Float64Array.from(ids, (id) => row[id]!),
        rowLength,
      );
      assert.equal(sparse, pairwiseSum(row));
    }),
  );
});
