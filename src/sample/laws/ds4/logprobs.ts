/**
 * Log-probabilities of the DS4 law, of the raw row: float64 sums in index order over the finite logits, the result
 * rounded to float32.
 *
 * Invariants: a token whose logit is not finite gets the masked value; a row without finite logits has the log-sum -infinity;
 * one whose finite logits all lie below the start of the scan has a sum of 0, and its tokens +infinity.
 */
import { expF64, logF64 } from '../../../numerics/exp.js';
import type { RowLogprobs, TokenLogprob } from '../../logprobs.js';
import type { Ds4Constants } from './constants.js';
import { DescendingIds, finiteMaximum } from './scans.js';

/** log(sum of e^v) over the finite logits. */
export function logSumExp(row: Float32Array, law: Ds4Constants): number {
  const { count, max } = finiteMaximum(row, law.start);
  if (count === 0) return -Infinity;
  let sum = 0;
  for (const logit of row) if (logit - logit === 0) sum += expF64(logit - max);
  return sum > 0 ? max + logF64(sum) : -Infinity; // the sum is 0, or at least the 1 of the maximum
}

/** float32; the masked value for an id outside the row or a logit that is not finite. */
export function logprobOf(row: Float32Array, id: number, logSum: number, law: Ds4Constants): number {
  const logit = row[id] ?? Number.NaN;
  return logit - logit === 0 ? Math.fround(logit - logSum) : law.maskedLogprob;
}

/** Ids of the k greatest finite logits, equal ones by lower id; fewer when fewer are finite. */
export function topIds(row: Float32Array, k: number): number[] {
  return new DescendingIds(row).take(k);
}

/** The chosen token's log-probability and those of the most likely ones. */
export function readLogprobs(row: Float32Array, chosenId: number, topCount: number, law: Ds4Constants): RowLogprobs {
  const logSum = logSumExp(row, law);
  const of = (tokenId: number): TokenLogprob => ({ tokenId, logprob: logprobOf(row, tokenId, logSum, law) });
  return { chosen: of(chosenId), top: topIds(row, topCount).map(of) };
}
