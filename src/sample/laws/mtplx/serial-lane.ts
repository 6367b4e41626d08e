/**
 * The float32 candidate lane that MTPLX serves from, as its host half: the device hands over m = min(4k, V) candidates
 * with scaled values and, when top_p is on, their full-vocabulary masses; the host decides.
 *
 * Invariants: order is value descending, id ascending, NaN last; the nucleus adds the float32 masses in float64; zeros are
 * dropped before the one division in rank order, and the sparse constructor divides once more in id order. Mass that is
 * not finite and positive means that the host law decides. For verification and comparison: what plumbline serves is the
 * host law, which also sees what lies outside the candidates.
 */
import type { RowContext } from '../../validity.js';
import { Distribution, divideBy } from './distribution.js';
import { activeTopP, type Filters } from './filters.js';
import { pairwiseSum } from '../../pairwise-sum.js';

export interface Candidates {
  readonly ids: ArrayLike<number>;
  /** float32 scaled logits, row * float32(1 / T). */
  readonly values: Float32Array;
  /** float32 probabilities under the full vocabulary; undefined when top_p is off. */
  readonly masses: Float32Array | undefined;
}

/** The k ranked candidates with the float64 mass that each brings. */
export interface Support {
  readonly ids: Int32Array;
  readonly masses: Float64Array;
}

/** How many candidates the device selects. */
export function candidateCount(k: number, vocabSize: number): number {
  return Math.min(4 * k, vocabSize);
}

/** One scaled logit as the device computes it: float32 product with float32(1 / T). */
export function scaledLogit(logit: number, temperature: number): number {
  return Math.fround(logit * Math.fround(1 / temperature));
}

function rankOrder({ ids, values }: Candidates): number[] {
  const last = (value: number): number => (Number.isNaN(value) ? 1 : 0);
  return Array.from(values.keys()).sort((a, b) => {
    const va = values[a]!;
    const vb = values[b]!;
    return last(va) - last(vb) || (va < vb ? 1 : va > vb ? -1 : ids[a]! - ids[b]!);
  });
}

/** float64 softmax over the values themselves, for when top_p is off. */
function softmaxOver(values: readonly number[]): Float64Array {
  const max = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = Float64Array.from(values, (value) => Math.exp(value - max));
  return divideBy(weights, pairwiseSum(weights));
}

/** The k first candidates in rank order, with zeros for what the nucleus drops. */
export function rankedSupport(candidates: Candidates, k: number, filters: Filters): Support {
  const order = rankOrder(candidates).slice(0, k);
  const { ids, values, masses } = candidates;
  const all =
    masses === undefined ? softmaxOver(order.map((at) => values[at]!)) : Float64Array.from(order, (at) => masses[at]!);
  const ranked = Int32Array.from(order, (at) => ids[at]!);
  const topP = activeTopP(filters);
  if (topP === undefined) return { ids: ranked, masses: all };
  let before = 0;
  const kept = all.map((mass) => {
    const stays = before < topP;
    before += mass;
    return stays ? mass : 0;
  });
  return { ids: ranked, masses: kept };
}

/** Whether equal values may lie outside the candidates, so that an exact selection of the device must replace them. */
export function mayReachOutside({ values }: Candidates, k: number): boolean {
  if (values.length <= k) return false;
  const kth = Float32Array.from(values).sort()[values.length - k]!;
  const smallest = values.reduce((a, b) => Math.min(a, b), Infinity);
  return smallest >= kth;
}

/** The distribution, or `bad-mass` when the host law must decide. */
export function serialDistribution(support: Support, context: RowContext): Distribution | 'bad-mass' {
  const total = pairwiseSum(support.masses);
  if (!(total > 0) || total === Infinity) return 'bad-mass';
  const kept = Array.from(support.ids, (id, rank) => ({ id, mass: support.masses[rank]! })).filter(
    ({ mass }) => mass > 0,
  );
  const sum = pairwiseSum(Float64Array.from(kept, ({ mass }) => mass));
  kept.sort((a, b) => a.id - b.id);
  return Distribution.sparse(
    Int32Array.from(kept, ({ id }) => id),
    Float64Array.from(kept, ({ mass }) => mass / sum),
    context,
  );
}
