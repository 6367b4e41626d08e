import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { pairwiseSum } from '../../pairwise-sum.js';
import { keepRanked } from './ranking.js';

interface Kept {
  readonly ids: number[];
  readonly probs: number[];
}

/** The definition: rank everything, walk the nucleus, cut at k. */
function defined(weights: Float64Array, total: number, topK: number | undefined, topP: number | undefined): Kept {
  const p = weights.map((weight) => weight / total);
  const ranked = Array.from(p.keys()).sort((a, b) => p[b]! - p[a]! || a - b);
  let mass = 0;
  const kept = ranked.filter((id, rank) => {
    const stays = (topP === undefined || mass < topP) && (topK === undefined || rank < topK);
    mass += p[id]!;
    return stays && p[id]! > 0;
  });
  kept.sort((a, b) => a - b);
  return { ids: kept, probs: kept.map((id) => p[id]!) };
}

function fast(weights: Float64Array, total: number, topK: number | undefined, topP: number | undefined): Kept {
  const out = { ids: new Int32Array(weights.length), probs: new Float64Array(weights.length) };
  const count = keepRanked(weights, total, topK, topP, out);
  return { ids: Array.from(out.ids.subarray(0, count)), probs: Array.from(out.probs.subarray(0, count)) };
}

/** Weights with ties, neighbours in the last bit, zeros, subnormals, and every order of magnitude. */
const weightArray = fc
  .array(
    fc.oneof(
      fc.constantFrom(0, 1, 0.5, 2 ** -10, 2 ** -20, 2 ** -40, 5e-324, 1e-310),
      fc.integer({ min: 1, max: 40 }).map((i) => 0.9 + i * 2 ** -53),
      fc.double({ min: 0, max: 80, noNaN: true }).map((x) => Math.exp(-x)),
    ),
    { minLength: 2, maxLength: 700 },
  )
  .map((values) => Float64Array.from([...values, 1]));

test('every path keeps what the definition keeps, to the bit', () => {
  const topK = fc.option(fc.integer({ min: 1, max: 699 }), { nil: undefined });
  const topP = fc.option(fc.double({ min: 1e-6, max: 0.999999999, noNaN: true }), { nil: undefined });
  fc.assert(
    fc.property(weightArray, topK, topP, (weights, k, p) => {
      const active = k !== undefined && k < weights.length ? k : undefined;
      const total = pairwiseSum(weights);
      assert.deepEqual(fast(weights, total, active, p), defined(weights, total, active, p));
    }),
    { numRuns: 600 },
  );
});

test('two weights that share one probability are ranked by id', () => {
  const weights = Float64Array.of(1 - 2 ** -53, 1, 1 - 2 ** -53, 1);
  const total = 3 + 2 ** -51;
  const p = weights.map((weight) => weight / total);
  assert.ok(p[0] === p[1], 'the test needs two weights with one quotient');
  assert.deepEqual(fast(weights, total, 1, undefined).ids, [0]);
  assert.deepEqual(fast(weights, total, undefined, 0.5).ids, [0, 1]);
});

test('ten equal tokens under top_p 0.8 keep nine: 8 * 0.1 added up is below 0.8', () => {
  assert.deepEqual(fast(new Float64Array(10).fill(1), 10, undefined, 0.8).ids, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(fast(new Float64Array(10).fill(1), 10, 9, 0.8).ids, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
});

test('a tie that straddles a threshold is cut by id, not by which side it lies on', () => {
  const below = 2 ** -10 * (1 - 2 ** -53);
  const weights = Float64Array.of(below, 2 ** -10, 2 ** -10, 1);
  const total = 1.9;
  assert.ok(weights[0]! < weights[1]! && weights[0]! / total === weights[1]! / total, 'the test needs such a pair');
  assert.deepEqual(fast(weights, total, undefined, 1.0001 / total).ids, [0, 3]);
});
