/**
 * The eager batch forms of MTPLX, which shape every row before the first draw and so raise on rows that are never reached.
 * They exist to judge fixtures only; what is served is lazy.
 */
import { PlumblineError } from '../../errors.js';
import { activeTopP, type Filters } from '../laws/mtplx/filters.js';
import type { Distribution } from '../laws/mtplx/distribution.js';
import { softmaxWeights, type HostShaper } from '../laws/mtplx/host-distribution.js';
import { checkRow, inspectRow, type RowContext } from '../validity.js';
import { pairwiseSum } from '../pairwise-sum.js';

/** All rows shaped in order; the first bad one raises. */
export function shapeAll(
  rows: readonly Float32Array[],
  shaper: HostShaper,
  filters: Filters,
  context: RowContext,
): Distribution[] {
  return rows.map((row) => shaper.shape(checkRow(row, context), filters, context));
}

export interface CohortRow {
  /** The k first of the ranking, ascending. */
  readonly ids: Int32Array;
  /** Zeros for what the nucleus dropped; divided once, by the sum taken in rank order. */
  readonly probs: Float64Array;
}

/** A fixed number of ids a row. `undefined`: a bad row, so the whole cohort is refused and rows go one by one. */
export function shapeCohort(
  rows: readonly Float32Array[],
  filters: Filters,
  context: RowContext,
): CohortRow[] | undefined {
  if (rows.some((row) => !inspectRow(row).valid)) return undefined;
  return rows.map((row) => shapeCohortRow(row, filters, context));
}

function shapeCohortRow(row: Float32Array, filters: Filters, context: RowContext): CohortRow {
  const k = Math.min(filters.topK, row.length);
  if (k <= 0) throw new PlumblineError('invalid_distribution', 'a cohort needs top_k');
  const weights = new Float64Array(row.length);
  const total = softmaxWeights(row, checkRow(row, context).max, filters.temperature, weights, context);
  const probability = weights.map((weight) => weight / total);
  // The k are taken by value, and only they are ranked by probability: logits closer than about 1e-16 share one.
  const ranked = Int32Array.from(row.keys())
    .sort((a, b) => (row[a]! < row[b]! ? 1 : row[a]! > row[b]! ? -1 : a - b))
    .slice(0, k)
    .sort((a, b) => probability[b]! - probability[a]! || a - b);
  const topP = activeTopP(filters) ?? Infinity;
  let mass = 0;
  const kept = Float64Array.from(ranked, (id) => {
    const p = mass < topP ? probability[id]! : 0;
    mass += probability[id]!;
    return p;
  });
  const sum = pairwiseSum(kept);
  const shareOf = new Map(Array.from(ranked, (id, rank) => [id, kept[rank]! / sum]));
  const ids = ranked.sort();
  return { ids, probs: Float64Array.from(ids, (id) => shareOf.get(id)!) };
}
