/**
 * The mixture of experts: the experts' products and their weighted sum with the shared expert.
 *
 * Invariants: an expert's rows are worked on together, but each as if it were alone.
 */
import { bufferField, field, floatField, trunkRows, weightAddress, weightDtype } from '../context';
import { dtypeShift } from '../dot';
import { gate4, sigma4, swiglu4 } from '../gates';
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
  MOE_UP_EXPERTS,
  MOE_UP_GATE,
  MOE_UP_HIDDEN,
  MOE_UP_IN,
  MOE_UP_LIMIT,
  MOE_UP_LIST,
  MOE_UP_OFFSETS,
  MOE_UP_OUT,
  MOE_UP_TOP_K,
  MOE_UP_UP,
  MOE_UP_WIDTH,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK } from '../work';

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
  const limit = floatField(MOE_UP_LIMIT);
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
        writeGated(resultOf(i), secondResultOf(i), out + ((pair * <usize>width + <usize>from) << 2), outs, limit);
      }
    }
  }
}

function expertDots(weight: i32, from: i32, outs: i32, rows: i32, k: i32, second: bool): void {
  const dtype = weightDtype(weight);
  const w = weightAddress(weight) + (<usize>from * <usize>k << <usize>dtypeShift(dtype));
  matmul(rows, k, w, dtype, outs, second);
}

/** A(silu(A(gate)) * A(up)), clamped first where there is a limit. */
function writeGated(gate: usize, up: usize, out: usize, outs: i32, limit: f32): void {
  for (let o = 0; o < outs; o += 4) {
    const at = <usize>o << 2;
    const x = swiglu4(act4(v128.load(gate + at)), act4(v128.load(up + at)), limit);
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
    const s = field(MOE_COMBINE_SHARED_GATE) < 0 ? f32x4.splat(1) : sharedGate(row);
    combineRow(down, weights, topK, bufferField(MOE_COMBINE_SHARED) + rowAt, s, hidden, bufferField(MOE_COMBINE_OUT) + rowAt);
  }
}

function sharedGate(row: i32): v128 {
  const logit = v128.load32_splat(bufferField(MOE_COMBINE_SHARED_GATE) + (<usize>row << 2));
  return field(MOE_COMBINE_LOWERING) == 1 ? gate4(logit, 1) : sigma4(logit);
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
