/**
 * Which experts a row goes to, and the rows of each expert.
 *
 * Invariants: a row's choice depends on its own logits only; equal logits go to the lower index, and the chosen stand in
 * ascending order; grouping is a stable counting sort, done by one thread.
 */
import { bufferField, field, scratch, SCRATCH_BODY, trunkRows } from '../context';
import { laneSum } from '../dot';
import { expF32x4 } from '../exp';
import {
  MOE_GROUP_EXPERTS,
  MOE_GROUP_INDEX,
  MOE_GROUP_OUT_LIST,
  MOE_GROUP_OUT_OFFSETS,
  MOE_GROUP_TOP_K,
  ROUTER_EXPERTS,
  ROUTER_LOGITS,
  ROUTER_NORMALISE,
  ROUTER_OUT_INDEX,
  ROUTER_OUT_WEIGHT,
  ROUTER_TOP_K,
} from '../plan-ops';
import { act, load4 } from '../rounding';
import { nextUnit } from '../sync';
import { EXP_WORK } from '../work';

/** The exponentials of a row. */
export function routerScratch(): usize {
  return SCRATCH_BODY + (<usize>(field(ROUTER_EXPERTS) + 3) << 2);
}

export function routerWork(): f64 {
  return <f64>trunkRows * <f64>field(ROUTER_EXPERTS) * <f64>(EXP_WORK + 4 * field(ROUTER_TOP_K));
}

export function router(): void {
  const experts = field(ROUTER_EXPERTS);
  const topK = field(ROUTER_TOP_K);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const logits = bufferField(ROUTER_LOGITS) + (<usize>(row * experts) << 2);
    const index = bufferField(ROUTER_OUT_INDEX) + (<usize>(row * topK) << 2);
    const weight = bufferField(ROUTER_OUT_WEIGHT) + (<usize>(row * topK) << 2);
    routeRow(logits, experts, topK, field(ROUTER_NORMALISE) != 0, index, weight);
  }
}

/** A value as it ranks: NaN as -infinity. */
@inline
export function rank(logit: f32): f32 {
  return logit == logit ? logit : -Infinity;
}

function routeRow(logits: usize, experts: i32, topK: i32, normalise: bool, index: usize, weight: usize): void {
  const e = scratch + SCRATCH_BODY;
  let greatest: f32 = -Infinity;
  for (let i = 0; i < experts; i++) greatest = max(greatest, rank(load<f32>(logits + (<usize>i << 2))));
  for (let i = 0; i < experts; i += 4) {
    const at = <usize>i << 2;
    v128.store(e + at, expF32x4(f32x4.sub(load4(logits + at, experts - i), f32x4.splat(greatest))));
  }
  const total = laneSum(e, experts);
  for (let slot = 0; slot < topK; slot++) insertBest(logits, experts, index, slot, 0, 1);
  let sum: f32 = 0;
  for (let slot = 0; slot < topK; slot++) {
    const at = <usize>slot << 2;
    const p = load<f32>(e + (<usize>load<i32>(index + at) << 2)) / total;
    store<f32>(weight + at, p);
    sum += p;
  }
  for (let slot = 0; slot < topK; slot++) {
    const at = <usize>slot << 2;
    const p = load<f32>(weight + at);
    store<f32>(weight + at, act(normalise ? p / sum : p));
  }
}

/**
 * Puts the best expert that is not among the `taken` ascending ones into its place among them. With `kept` (not 0): only
 * experts whose group of `size` is marked there.
 */
export function insertBest(logits: usize, experts: i32, index: usize, taken: i32, kept: usize, size: i32): void {
  let best = -1;
  let bestRank: f32 = -Infinity;
  let bestPlace = 0;
  let place = 0;
  for (let i = 0; i < experts; i++) {
    if (place < taken && load<i32>(index + (<usize>place << 2)) == i) {
      place++;
      continue;
    }
    if (kept != 0 && load<u8>(kept + <usize>(i / size)) == 0) continue;
    const r = rank(load<f32>(logits + (<usize>i << 2)));
    if (best < 0 || r > bestRank) {
      best = i;
      bestRank = r;
      bestPlace = place;
    }
  }
  const at = index + (<usize>bestPlace << 2);
  memory.copy(at + 4, at, <usize>(taken - bestPlace) << 2);
  store<i32>(at, best);
}

export function moeGroup(): void {
  const experts = field(MOE_GROUP_EXPERTS);
  const pairs = trunkRows * field(MOE_GROUP_TOP_K);
  const index = bufferField(MOE_GROUP_INDEX);
  const offsets = bufferField(MOE_GROUP_OUT_OFFSETS);
  const list = bufferField(MOE_GROUP_OUT_LIST);
  // Counted one place up, summed, used as write positions, then each stands where the next expert begins: shift back.
  memory.fill(offsets, 0, <usize>(experts + 1) << 2);
  for (let p = 0; p < pairs; p++) {
    const at = offsets + (<usize>load<i32>(index + (<usize>p << 2)) << 2);
    store<i32>(at, load<i32>(at, 4) + 1, 4);
  }
  for (let e = 0; e < experts; e++) {
    const at = offsets + (<usize>e << 2);
    store<i32>(at, load<i32>(at) + load<i32>(at, 4), 4);
  }
  for (let p = 0; p < pairs; p++) {
    const at = offsets + (<usize>load<i32>(index + (<usize>p << 2)) << 2);
    const to = load<i32>(at);
    store<i32>(list + (<usize>to << 2), p);
    store<i32>(at, to + 1);
  }
  memory.copy(offsets + 4, offsets, <usize>experts << 2);
  store<i32>(offsets, 0);
}
