/**
 * The reference distribution of a row, the authority of the MTPLX law: float64 softmax of row / T, then top_p and top_k on
 * the same probabilities, then one division by the kept sum, taken over the full row with zeros in place.
 *
 * Invariants: only a checked row gets here; x = l / T is a division, and so is p = e / sum; sums follow NumPy's pairwise
 * order. A row that overflows only by the division is NonFiniteLogitsError, never a guess. Working memory is reused
 * between calls; what `shape` returns owns its arrays.
 */
import { NonFiniteLogitsError } from '../../../errors.js';
import { fillSoftmaxWeights } from '../../softmax-weights.js';
import { censusOf, type LogitsRow, type RowContext, type ValidRow } from '../../validity.js';
import type { UniformSource } from './choice.js';
import { Distribution, divideBy } from './distribution.js';
import { activeTopK, activeTopP, laneOf, type Filters } from './filters.js';
import { pairwiseSum, pairwiseSumSparse } from '../../pairwise-sum.js';
import { keepRanked, type KeptEntries } from './ranking.js';

/**
 * Fills weights[i] = e^(row[i] / T - max / T).
 * @returns their pairwise sum: finite and at least 1.
 * @throws NonFiniteLogitsError when max / T overflows; the census is of the row.
 */
export function softmaxWeights(
  row: LogitsRow,
  max: number,
  temperature: number,
  weights: Float64Array,
  context: RowContext,
): number {
  const top = max / temperature; // division is monotone, so this is the maximum of row / T
  if (!Number.isFinite(top)) throw new NonFiniteLogitsError({ ...context, ...censusOf(row) });
  fillSoftmaxWeights(row, temperature, top, weights);
  return pairwiseSum(weights, 0, row.length);
}

/** Shapes rows of one vocabulary size; not reentrant, shared freely between requests (shaping is synchronous). */
export class HostShaper {
  private readonly weights: Float64Array;
  private readonly kept: KeptEntries;

  constructor(readonly vocabSize: number) {
    this.weights = new Float64Array(vocabSize);
    this.kept = { ids: new Int32Array(vocabSize), probs: new Float64Array(vocabSize) };
  }

  /**
   * The distribution of a checked row, in the frame of the filters' lane.
   * @throws NonFiniteLogitsError when the division by T overflows.
   */
  shape(valid: ValidRow, filters: Filters, context: RowContext): Distribution {
    const lane = laneOf(filters);
    if (lane === 'greedy') return Distribution.oneHot(valid.argmax);
    const { ids, probs } = this.fill(valid, filters, context);
    return lane === 'sparse'
      ? Distribution.sparse(ids.slice(), probs, context)
      : Distribution.dense(ids.slice(), probs.slice(), this.vocabSize);
  }

  /** One draw from the shaped row, without keeping the distribution: one double at T > 0, none when greedy. */
  draw(valid: ValidRow, filters: Filters, context: RowContext, random: UniformSource): number {
    const lane = laneOf(filters);
    if (lane === 'greedy') return valid.argmax;
    const { ids, probs } = this.fill(valid, filters, context);
    const borrowed =
      lane === 'sparse' ? Distribution.sparse(ids, probs, context) : Distribution.dense(ids, probs, this.vocabSize);
    return borrowed.draw(random);
  }

  /** The kept ids and their once-normalised probabilities, in working memory that the next call overwrites. */
  private fill(valid: ValidRow, filters: Filters, context: RowContext): KeptEntries {
    const { kept, vocabSize, weights } = this;
    const total = softmaxWeights(valid.row, valid.max, filters.temperature, weights, context);
    const count = keepRanked(weights, total, activeTopK(filters, vocabSize), activeTopP(filters), kept);
    const ids = kept.ids.subarray(0, count);
    const probs = kept.probs.subarray(0, count);
    divideBy(probs, pairwiseSumSparse(ids, probs, vocabSize));
    return { ids, probs };
  }
}
