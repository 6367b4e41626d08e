/**
 * The plain acceptance law: a draft token x ~ q is accepted with probability min(1, p(x) / q(x)); after a rejection the
 * token comes from the normalised positive part of p - q. Then the emitted token is distributed as p.
 *
 * Invariants: p and q were shaped from checked rows; an empty residual means p = q up to rounding, where a rejection is
 * impossible, and is p, not an error; a dense operand makes the residual dense.
 */
import type { RowContext } from '../../validity.js';
import { Distribution, divideBy } from './distribution.js';
import { pairwiseSum, pairwiseSumSparse } from '../../pairwise-sum.js';

/** p / q of a draft with probability q under the draft and p under the target; without q, whether p has mass. */
export function acceptRatio(p: number, q: number): number {
  if (q <= 0) return p > 0 ? 1 : 0;
  return p / q;
}

/** The coin's threshold for such a draft: accept when u <= it. */
export function acceptProbability(p: number, q: number): number {
  return Math.min(1, acceptRatio(p, q));
}

/** Probabilities by id. */
export function massesOf(distribution: Distribution): Map<number, number> {
  return new Map(Array.from(distribution.ids, (id, at) => [id, distribution.probs[at]!]));
}

/** The positive entries of a measure given by ids and masses, ascending. */
function positivePart(ids: Int32Array, massOf: (id: number, at: number) => number): [Int32Array, Float64Array] {
  const left = Array.from(ids, (id, at) => ({ id, mass: massOf(id, at) }))
    .filter(({ mass }) => mass > 0)
    .sort((a, b) => a.id - b.id);
  return [Int32Array.from(left, ({ id }) => id), Float64Array.from(left, ({ mass }) => mass)];
}

/** normalise((target - draft)+), ids ascending; the target itself when nothing is left. */
export function residual(target: Distribution, draft: Distribution, context: RowContext): Distribution {
  const drafted = massesOf(draft);
  let [ids, masses] = positivePart(target.ids, (id, at) => target.probs[at]! - (drafted.get(id) ?? 0));
  const rowLength = target.rowLength ?? draft.rowLength;
  if (rowLength === undefined) {
    if (ids.length === 0) return target;
    return Distribution.sparse(ids, divideBy(masses, pairwiseSum(masses)), context);
  }
  if (ids.length === 0) [ids, masses] = positivePart(target.ids, (_id, at) => target.probs[at]!);
  return Distribution.dense(ids, divideBy(masses, pairwiseSumSparse(ids, masses, rowLength)), rowLength);
}
