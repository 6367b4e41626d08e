/**
 * Log-probabilities of a processed row: the raw log-softmax after mask and penalties, before temperature and filters;
 * float64, natural logarithm.
 *
 * Invariants: only a checked row gets here, so the result of a sampled token is finite; entries without probability
 * (masked ids) are never listed; equal logits are listed by lower id.
 */
import { pairwiseSum } from './pairwise-sum.js';
import { fillSoftmaxWeights } from './softmax-weights.js';
import type { ValidRow } from './validity.js';

export interface TokenLogprob {
  readonly tokenId: number;
  /** Natural log; finite. */
  readonly logprob: number;
}

/** Ids of the `count` largest finite logits, largest first, equal ones by lower id. */
function leaders(row: ValidRow['row'], count: number): number[] {
  const ids: number[] = [];
  let floor = -Infinity;
  for (let id = 0; id < row.length && count > 0; id++) {
    const value = row[id]!;
    if (!(value > floor)) continue;
    let at = ids.length;
    while (at > 0 && row[ids[at - 1]!]! < value) at--;
    ids.splice(at, 0, id);
    if (ids.length > count) ids.pop();
    if (ids.length === count) floor = row[ids[count - 1]!]!;
  }
  return ids;
}

export interface RowLogprobs {
  readonly chosen: TokenLogprob;
  /** At most the asked number, most likely first. */
  readonly top: readonly TokenLogprob[];
}

export class LogprobReader {
  private weights: Float64Array | undefined;

  /** The chosen token's log-probability and the `topCount` most likely ones. */
  read(valid: ValidRow, chosenId: number, topCount: number): RowLogprobs {
    const { row, max } = valid;
    const weights = (this.weights ??= new Float64Array(row.length));
    fillSoftmaxWeights(row, 1, max, weights);
    const logSum = Math.log(pairwiseSum(weights, 0, row.length));
    const of = (id: number): TokenLogprob => ({ tokenId: id, logprob: row[id]! - max - logSum });
    return { chosen: of(chosenId), top: leaders(row, topCount).map(of) };
  }
}
