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

/**
 * The probability that `law` gives to each of `ids`; 0 where it has none.
 * @param ids ascending, as those of the law.
 */
export function massesAt(law: Distribution, ids: Int32Array): Float64Array {
  let at = 0;
  return Float64Array.from(ids, (id) => {
    while (at < law.ids.length && law.ids[at]! < id) at++;
    return law.ids[at] === id ? law.probs[at]! : 0;
  });
}

/** The positive entries of a measure on ascending ids. */
export function positivePart(ids: Int32Array, masses: Float64Array): readonly [Int32Array, Float64Array] {
  const positive = (_: number, at: number): boolean => masses[at]! > 0;
  return [ids.filter(positive), masses.filter(positive)];
}

/** normalise((target - draft)+), ids ascending; the target itself when nothing is left. */
export function residual(target: Distribution, draft: Distribution, context: RowContext): Distribution {
  const drafted = massesAt(draft, target.ids);
  const [ids, masses] = positivePart(
    target.ids,
    target.probs.map((p, at) => p - drafted[at]!),
  );
  const rowLength = target.rowLength ?? draft.rowLength;
  if (rowLength === undefined) {
    if (ids.length === 0) return target;
    return Distribution.sparse(ids, divideBy(masses, pairwiseSum(masses)), context);
  }
  const [kept, left] = ids.length > 0 ? [ids, masses] : positivePart(target.ids, target.probs);
  return Distribution.dense(kept, divideBy(left, pairwiseSumSparse(kept, left, rowLength)), rowLength);
}
