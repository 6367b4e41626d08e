/**
 * The mixture of experts: choice, grouping, the experts' products and their weighted sum.
 *
 * Invariants: an expert's rows are worked on together, but each as if it were alone; moeGroup is done by one thread.
 */
import {
  bufferField,
  field,
  scratch,
  SCRATCH_BODY,
  trunkRows,
  weightAddress,
  weightDtype,
} from '../context';
import { dtypeShift, laneSum } from '../dot';
import { expF32x4 } from '../exp';
import { gate4, sigma4, silu4 } from '../gates';
import { beginChunk, chunkRows, matmul, matmulScratch, resultOf, rowEntry, secondResultOf, UNIT_OUTS } from '../matmul';
import {
  MOE_COMBINE_DOWN,
  MOE_COMBINE_HIDDEN,
  MOE_COMBINE_LOWERING,
  MOE_COMBINE_OUT,
  MOE_COMBINE_SHARED,
  MOE_COMBINE_SHARED_GATE,
  MOE_COMBINE_TOP_K,
  MOE_COMBINE_WEIGHTS,
  MOE_DOWN_DOWN,
  MOE_DOWN_EXPERTS,
  MOE_DOWN_HIDDEN,
  MOE_DOWN_IN,
  MOE_DOWN_LIST,
  MOE_DOWN_OFFSETS,
  MOE_DOWN_OUT,
  MOE_DOWN_TOP_K,
  MOE_DOWN_WIDTH,
  MOE_GROUP_EXPERTS,
  MOE_GROUP_INDEX,
  MOE_GROUP_OUT_LIST,
  MOE_GROUP_OUT_OFFSETS,
  MOE_GROUP_TOP_K,
  MOE_UP_EXPERTS,
  MOE_UP_GATE,
  MOE_UP_HIDDEN,
  MOE_UP_IN,
  MOE_UP_LIST,
  MOE_UP_OFFSETS,
  MOE_UP_OUT,
  MOE_UP_TOP_K,
  MOE_UP_UP,
  MOE_UP_WIDTH,
  ROUTER_EXPERTS,
  ROUTER_LOGITS,
  ROUTER_NORMALISE,
  ROUTER_OUT_INDEX,
  ROUTER_OUT_WEIGHT,
  ROUTER_TOP_K,
} from '../plan-ops';
import { act, act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK, EXP_WORK } from '../work';

/** The exponentials of a row. */
export function routerScratch(): usize {
  return SCRATCH_BODY + (<usize>(field(ROUTER_EXPERTS) + 3) << 2);
}

export function routerWork(): f64 {
  return <f64>trunkRows * <f64>field(ROUTER_EXPERTS) * <f64>(4 * EXP_WORK + field(ROUTER_TOP_K));
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

/** A logit as it ranks: NaN as -infinity. */
@inline
function rank(logit: f32): f32 {
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
  for (let slot = 0; slot < topK; slot++) insertBest(logits, experts, index, slot);
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

/** Puts the best expert that is not among the `taken` ascending ones into its place among them. */
function insertBest(logits: usize, experts: i32, index: usize, taken: i32): void {
  let best = -1;
  let bestRank: f32 = -Infinity;
  let bestPlace = 0;
  let place = 0;
  for (let i = 0; i < experts; i++) {
    if (place < taken && load<i32>(index + (<usize>place << 2)) == i) {
      place++;
      continue;
    }
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

// Walks the units of work of the experts in order: each is one expert by up to UNIT_OUTS outputs.
let expert: i32 = 0;
let firstUnit: i32 = 0;

/** Finds the expert of a unit, no smaller than the last one; false when there is no such unit. */
function seekExpert(unit: i32, offsets: usize, experts: i32, unitsEach: i32): bool {
  for (; expert < experts; expert++) {
    const at = offsets + (<usize>expert << 2);
    if (load<i32>(at) == load<i32>(at, 4)) continue;
    if (unit < firstUnit + unitsEach) return true;
    firstUnit += unitsEach;
  }
  return false;
}

export function moeUpScratch(): usize {
  return matmulScratch(field(MOE_UP_HIDDEN));
}

export function moeUpWork(): f64 {
  return 2 * <f64>trunkRows * <f64>field(MOE_UP_TOP_K) * <f64>field(MOE_UP_HIDDEN) * <f64>field(MOE_UP_WIDTH);
}

export function moeUp(): void {
  const hidden = field(MOE_UP_HIDDEN);
  const width = field(MOE_UP_WIDTH);
  const topK = field(MOE_UP_TOP_K);
  const input = bufferField(MOE_UP_IN);
  const out = bufferField(MOE_UP_OUT);
  const offsets = bufferField(MOE_UP_OFFSETS);
  const list = bufferField(MOE_UP_LIST);
  const unitsEach = (width + UNIT_OUTS - 1) / UNIT_OUTS;
  const most = chunkRows(hidden);
  expert = 0;
  firstUnit = 0;
  for (let unit = nextUnit(); seekExpert(unit, offsets, field(MOE_UP_EXPERTS), unitsEach); unit = nextUnit()) {
    const from = (unit - firstUnit) * UNIT_OUTS;
    const outs = min(UNIT_OUTS, width - from);
    const end = load<i32>(offsets + (<usize>expert << 2), 4);
    for (let first = load<i32>(offsets + (<usize>expert << 2)); first < end; first += most) {
      const pairs = list + (<usize>first << 2);
      const count = min(most, end - first);
      beginChunk();
      for (let i = 0; i < count; i++) {
        const row = load<i32>(pairs + (<usize>i << 2)) / topK;
        store<u32>(rowEntry(i), <u32>(input + (<usize>row * <usize>hidden << 2)));
      }
      expertDots(field(MOE_UP_GATE) + expert, from, outs, count, hidden, false);
      expertDots(field(MOE_UP_UP) + expert, from, outs, count, hidden, true);
      for (let i = 0; i < count; i++) {
        const pair = <usize>load<i32>(pairs + (<usize>i << 2));
        writeGated(resultOf(i), secondResultOf(i), out + ((pair * <usize>width + <usize>from) << 2), outs);
      }
    }
  }
}

function expertDots(weight: i32, from: i32, outs: i32, rows: i32, k: i32, second: bool): void {
  const dtype = weightDtype(weight);
  const w = weightAddress(weight) + (<usize>from * <usize>k << <usize>dtypeShift(dtype));
  matmul(rows, k, w, dtype, outs, second);
}

/** A(silu(A(gate)) * A(up)). */
function writeGated(gate: usize, up: usize, out: usize, outs: i32): void {
  for (let o = 0; o < outs; o += 4) {
    const at = <usize>o << 2;
    const x = f32x4.mul(silu4(act4(v128.load(gate + at))), act4(v128.load(up + at)));
    store4(out + at, act4(x), outs - o);
  }
}

export function moeDownScratch(): usize {
  return matmulScratch(field(MOE_DOWN_WIDTH));
}

export function moeDownWork(): f64 {
  return <f64>trunkRows * <f64>field(MOE_DOWN_TOP_K) * <f64>field(MOE_DOWN_WIDTH) * <f64>field(MOE_DOWN_HIDDEN);
}

export function moeDown(): void {
  const width = field(MOE_DOWN_WIDTH);
  const hidden = field(MOE_DOWN_HIDDEN);
  const input = bufferField(MOE_DOWN_IN);
  const out = bufferField(MOE_DOWN_OUT);
  const offsets = bufferField(MOE_DOWN_OFFSETS);
  const list = bufferField(MOE_DOWN_LIST);
  const unitsEach = (hidden + UNIT_OUTS - 1) / UNIT_OUTS;
  const most = chunkRows(width);
  expert = 0;
  firstUnit = 0;
  for (let unit = nextUnit(); seekExpert(unit, offsets, field(MOE_DOWN_EXPERTS), unitsEach); unit = nextUnit()) {
    const from = (unit - firstUnit) * UNIT_OUTS;
    const outs = min(UNIT_OUTS, hidden - from);
    const end = load<i32>(offsets + (<usize>expert << 2), 4);
    for (let first = load<i32>(offsets + (<usize>expert << 2)); first < end; first += most) {
      const pairs = list + (<usize>first << 2);
      const count = min(most, end - first);
      beginChunk();
      for (let i = 0; i < count; i++) {
        const pair = <usize>load<i32>(pairs + (<usize>i << 2));
        store<u32>(rowEntry(i), <u32>(input + (pair * <usize>width << 2)));
      }
      expertDots(field(MOE_DOWN_DOWN) + expert, from, outs, count, width, false);
      for (let i = 0; i < count; i++) {
        const pair = <usize>load<i32>(pairs + (<usize>i << 2));
        writeRounded(resultOf(i), out + ((pair * <usize>hidden + <usize>from) << 2), outs);
      }
    }
  }
}

function writeRounded(result: usize, out: usize, outs: i32): void {
  for (let o = 0; o < outs; o += 4) {
    const at = <usize>o << 2;
    store4(out + at, act4(v128.load(result + at)), outs - o);
  }
}

export function moeCombineWork(): f64 {
  return <f64>trunkRows * <f64>field(MOE_COMBINE_HIDDEN) * <f64>field(MOE_COMBINE_TOP_K) * ELEMENT_WORK;
}

export function moeCombine(): void {
  const hidden = field(MOE_COMBINE_HIDDEN);
  const topK = field(MOE_COMBINE_TOP_K);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const rowAt = <usize>(row * hidden) << 2;
    const weights = bufferField(MOE_COMBINE_WEIGHTS) + (<usize>(row * topK) << 2);
    const down = bufferField(MOE_COMBINE_DOWN) + (<usize>row * <usize>topK * <usize>hidden << 2);
    const logit = v128.load32_splat(bufferField(MOE_COMBINE_SHARED_GATE) + (<usize>row << 2));
    const s = field(MOE_COMBINE_LOWERING) == 1 ? gate4(logit, 1) : sigma4(logit);
    combineRow(down, weights, topK, bufferField(MOE_COMBINE_SHARED) + rowAt, s, hidden, bufferField(MOE_COMBINE_OUT) + rowAt);
  }
}

function combineRow(down: usize, weights: usize, topK: i32, shared: usize, s: v128, hidden: i32, out: usize): void {
  for (let i = 0; i < hidden; i += 4) {
    const at = <usize>i << 2;
    let y = f32x4.splat(0);
    for (let slot = 0; slot < topK; slot++) {
      const x = load4(down + (<usize>slot * <usize>hidden << 2) + at, hidden - i);
      y = f32x4.add(f32x4.mul(v128.load32_splat(weights + (<usize>slot << 2)), x), y);
    }
    const scaled = act4(f32x4.mul(s, load4(shared + at, hidden - i)));
    store4(out + at, act4(f32x4.add(act4(y), scaled)), hidden - i);
  }
}
