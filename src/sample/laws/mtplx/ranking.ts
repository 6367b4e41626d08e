/**
 * top_p, then top_k, both on one probability vector: which ids stay.
 *
 * Rank: probability descending, equal probabilities by lower id. Nucleus: ranked entries whose running mass before them is
 * below top_p. top_k: the first k of the ranking. Kept: both.
 *
 * Invariants: the ranking is of the rounded probabilities p = weight / total, not of the weights (two weights may share
 * one p); running masses are plain float64 sums in rank order. No V-sized sort on the usual paths: a short list for small
 * k, else only entries above a weight threshold, lowered until one is to spare.
 */
import { PlumblineError } from '../../../errors.js';

/** Where the kept entries go: ids ascending, probs beside them; both at least as long as the row. */
export interface KeptEntries {
  readonly ids: Int32Array;
  readonly probs: Float64Array;
}

/** Longest list kept sorted by insertion; beyond it a threshold and one sort are cheaper. */
const SHORT_LIST = 256;

/** Weights are e^(x - max), at most 1; most models put the nucleus above the first of these. */
const THRESHOLDS = [2 ** -10, 2 ** -20, 2 ** -40, 0] as const;

/**
 * Writes the kept ids and their p = weight / total; entries of probability 0 are left out.
 * @param weights [V], non-negative.
 * @param topK undefined when off.
 * @param topP undefined when off.
 * @returns how many were kept, at least 1.
 */
export function keepRanked(
  weights: Float64Array,
  total: number,
  topK: number | undefined,
  topP: number | undefined,
  out: KeptEntries,
): number {
  if (topK !== undefined && topK <= SHORT_LIST) return keepShortList(weights, total, topK, topP, out);
  if (topK === undefined && topP === undefined) return collect(weights, total, 0, Infinity, out);
  const { cut, ties } = findCut(weights, total, topK ?? weights.length, topP);
  return collect(weights, total, cut, ties, out);
}

/** How many of the first `count` ranked probabilities the nucleus keeps. */
function nucleusLength(ranked: Float64Array, count: number, topP: number | undefined): number {
  if (topP === undefined) return count;
  let mass = 0;
  for (let rank = 0; rank < count; rank++) {
    if (!(mass < topP)) return rank;
    mass += ranked[rank]!;
  }
  return count;
}

function keepShortList(
  weights: Float64Array,
  total: number,
  k: number,
  topP: number | undefined,
  out: KeptEntries,
): number {
  const ranked = new Float64Array(k);
  const ids = new Int32Array(k);
  let size = 0;
  let floor = -1; // weight of the last entry once the list is full: p grows with the weight, so less cannot enter
  for (let id = 0; id < weights.length; id++) {
    const weight = weights[id]!;
    if (weight <= floor) continue;
    const p = weight / total;
    if (size === k) {
      if (!(p > ranked[k - 1]!)) continue;
    } else {
      size++;
    }
    let at = size - 1;
    for (; at > 0 && ranked[at - 1]! < p; at--) {
      ranked[at] = ranked[at - 1]!;
      ids[at] = ids[at - 1]!;
    }
    ranked[at] = p;
    ids[at] = id;
    if (size === k) floor = weights[ids[k - 1]!]!;
  }
  const kept = ids.subarray(0, nucleusLength(ranked, size, topP)).sort();
  let count = 0;
  for (const id of kept) {
    const p = weights[id]! / total;
    if (p === 0) continue;
    out.ids[count] = id;
    out.probs[count++] = p;
  }
  return count;
}

/** The last kept probability, and how many entries of exactly that probability are kept (lowest ids first). */
interface Cut {
  readonly cut: number;
  readonly ties: number;
}

interface Reach {
  readonly count: number;
  readonly mass: number;
}

/** How many weights reach each threshold, and their mass. */
function reachOf(weights: Float64Array): Reach[] {
  const counts = new Int32Array(THRESHOLDS.length);
  const masses = new Float64Array(THRESHOLDS.length);
  const [first, second, third] = THRESHOLDS;
  for (let i = 0; i < weights.length; i++) {
    const weight = weights[i]!;
    const level = weight >= first ? 0 : weight >= second ? 1 : weight >= third ? 2 : 3;
    counts[level]!++;
    masses[level]! += weight;
  }
  let count = 0;
  let mass = 0;
  return THRESHOLDS.map((_, level) => ({ count: (count += counts[level]!), mass: (mass += masses[level]!) }));
}

/** The probabilities of all weights that reach the threshold, descending. */
function rankedAbove(weights: Float64Array, total: number, threshold: number, count: number): Float64Array {
  const ranked = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < weights.length; i++) {
    if (weights[i]! >= threshold) ranked[at++] = weights[i]! / total;
  }
  return ranked.sort().reverse();
}

function findCut(weights: Float64Array, total: number, k: number, topP: number | undefined): Cut {
  const reach = reachOf(weights);
  for (const [level, threshold] of THRESHOLDS.entries()) {
    const complete = level === THRESHOLDS.length - 1;
    const { count, mass } = reach[level]!;
    const enough = count > k || (topP !== undefined && mass > topP * total);
    if (!enough && !complete) continue;
    const ranked = rankedAbove(weights, total, threshold, count);
    const kept = nucleusLength(ranked, Math.min(k, count), topP);
    const cut = ranked[kept - 1]!;
    // With an entry to spare the walk ended by itself. Entries below the threshold may share the cut's p and come first by
    // id; they change which ties are kept, which `collect` decides over the whole row, but not how many.
    if (kept === count && !complete) continue;
    return { cut, ties: kept - ranked.indexOf(cut) };
  }
  throw new PlumblineError('internal_error', 'no cut although the last threshold takes every entry');
}

/** Entries above the cut, and the first `ties` at it, in id order; zeros left out. */
function collect(weights: Float64Array, total: number, cut: number, ties: number, out: KeptEntries): number {
  // No weight below this has a p as large as the cut; subnormal cuts have too few digits to say so.
  const nearCut = cut > 2 ** -960 ? cut * total * (1 - 2 ** -50) : 0;
  let count = 0;
  let left = ties;
  for (let id = 0; id < weights.length; id++) {
    const weight = weights[id]!;
    if (weight < nearCut) continue;
    const p = weight / total;
    if (p === 0 || p < cut || (p === cut && left-- <= 0)) continue;
    out.ids[count] = id;
    out.probs[count++] = p;
  }
  return count;
}
