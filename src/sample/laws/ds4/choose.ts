/**
 * One token from one row of logits by the DS4 law: float32 throughout, every operation rounded at once, sums in the order
 * named.
 *
 * Invariants: never an error, whatever the row holds; nothing is drawn when greedy, when no logit is finite, and when no
 * mass is left; otherwise exactly one number is drawn, and the answer is the first entry at which the subtraction
 * reaches zero. The row is not changed.
 */
import { expF64 } from '../../../numerics/exp.js';
import type { Xorshift64Star } from '../../rng/xorshift64star.js';
import type { Ds4Constants } from './constants.js';
import type { Ds4Knobs } from './knobs.js';
import { DescendingIds, finiteMaximum, greedyIndex } from './scans.js';

const f32 = Math.fround;

/** e^x as float32: exactly 1 at 0, 0 below about -104, subnormal results kept. */
const expf = (x: number): number => f32(expF64(x));

/** The weight of a logit beside the greatest one. */
const weightOf = (logit: number, max: number, temperature: number): number => expf(f32(f32(logit - max) / temperature));

const hasMass = (sum: number): boolean => sum > 0 && sum < Infinity;

/**
 * The id that the law takes from a row.
 * @param row [V] float32, anything at all.
 * @param knobs settled for V (`settleKnobs`).
 */
export function chooseId(row: Float32Array, knobs: Ds4Knobs, random: Xorshift64Star, law: Ds4Constants): number {
  if (knobs.temperature <= 0) return greedyIndex(row, law.start);
  if (knobs.topK > 0) return chooseAmongTopK(row, knobs, random, law);
  return knobs.topP === 1 ? choosePlain(row, knobs, random, law) : chooseSorted(row, knobs, random, law);
}

/** No filter but min_p, which is relative to the best token; index order throughout. */
function choosePlain(row: Float32Array, knobs: Ds4Knobs, random: Xorshift64Star, law: Ds4Constants): number {
  const { temperature, minP } = knobs;
  const { count, max, best } = finiteMaximum(row, law.start);
  if (count === 0) return greedyIndex(row, law.start);
  const weights = new Float32Array(count);
  const ids = new Int32Array(count);
  let kept = 0;
  let sum = 0;
  for (let i = 0; i < row.length; i++) {
    const logit = row[i]!;
    if (logit - logit !== 0) continue;
    const weight = weightOf(logit, max, temperature);
    if (weight < minP) continue;
    weights[kept] = weight;
    ids[kept++] = i;
    sum = f32(sum + weight);
  }
  if (!hasMass(sum)) return best;
  const at = subtract(weights, kept, f32(random.nextUniform() * sum));
  return at < kept ? ids[at]! : best;
}

/** top_p below 1 without top_k: the mass is summed in index order, the walk goes by logit. */
function chooseSorted(row: Float32Array, knobs: Ds4Knobs, random: Xorshift64Star, law: Ds4Constants): number {
  const { count, max, best } = finiteMaximum(row, law.start);
  if (count === 0) return greedyIndex(row, law.start);
  let sum = 0;
  for (const logit of row) {
    if (logit - logit === 0) sum = f32(sum + weightOf(logit, max, knobs.temperature));
  }
  if (!hasMass(sum)) return best;
  const order = new DescendingIds(row);
  return walk(
    () => order.next(),
    (id) => weightOf(row[id]!, max, knobs.temperature),
    sum,
    knobs,
    random,
  );
}

/** The k greatest finite logits, also those below the start of the other scans. */
function chooseAmongTopK(row: Float32Array, knobs: Ds4Knobs, random: Xorshift64Star, law: Ds4Constants): number {
  const ids = new DescendingIds(row).take(knobs.topK);
  const [first] = ids;
  if (first === undefined) return greedyIndex(row, law.start);
  const weights = ids.map((id) => weightOf(row[id]!, row[first]!, knobs.temperature));
  const sum = weights.reduce((total, weight) => f32(total + weight), 0);
  if (!hasMass(sum)) return first;
  let at = 0;
  let taken = 0;
  return walk(
    () => ids[at++],
    () => weights[taken++]!,
    sum,
    knobs,
    random,
  );
}

/**
 * Keeps entries in order until min_p stops before one or top_p behind one, and draws among them.
 * @param nextId ids in the order of the walk; @param weight the weight of the id just given, asked once each.
 */
function walk(
  nextId: () => number | undefined,
  weight: (id: number) => number,
  sum: number,
  { topP, minP }: Ds4Knobs,
  random: Xorshift64Star,
): number {
  const ids: number[] = [];
  const weights: number[] = [];
  let least = 0;
  let filled = 0;
  for (let id = nextId(); id !== undefined; id = nextId()) {
    const p = weight(id);
    const share = f32(p / sum);
    if (ids.length === 0) least = f32(share * minP);
    else if (share < least) break;
    filled = f32(filled + p);
    ids.push(id);
    weights.push(p);
    if (f32(filled / sum) >= topP) break;
  }
  const at = subtract(weights, weights.length, f32(random.nextUniform() * filled));
  return ids[Math.min(at, ids.length - 1)]!;
}

/** Index of the first of `count` weights at which r, less the weights so far, is at or below zero; `count` when none is. */
function subtract(weights: ArrayLike<number>, count: number, r: number): number {
  let left = r;
  for (let i = 0; i < count; i++) {
    left = f32(left - weights[i]!);
    if (left <= 0) return i;
  }
  return count;
}
