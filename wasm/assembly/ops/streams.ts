/**
 * Ops over parallel residual streams: hyper-connections, and the per-layer embedding's gate. A unit of work is a row.
 */
import { bufferField, field, floatField, rowsOf, scratch, SCRATCH_BODY, trunkRows } from '../context';
import { laneSum } from '../dot';
import { gate4, sigma4, silu4 } from '../gates';
import {
  HC_ACT_DOWN,
  HC_ACT_INJECT,
  HC_ACT_LOWERING,
  HC_ACT_RANK,
  HC_ACT_ROWS,
  HC_ACT_STREAMS,
  HC_MIX_HIDDEN,
  HC_MIX_MIX,
  HC_MIX_NORMED,
  HC_MIX_OUT,
  HC_MIX_ROWS,
  HC_MIX_STREAMS,
  HC_WRITE_HIDDEN,
  HC_WRITE_INJECT,
  HC_WRITE_RESIDUAL,
  HC_WRITE_STREAMS,
  HC_WRITE_Y,
  PLE_GATE_HIDDEN,
  PLE_GATE_KEY,
  PLE_GATE_LOWERING,
  PLE_GATE_OUT,
  PLE_GATE_QUERY,
  PLE_GATE_ROOT_HIDDEN,
  PLE_GATE_STREAMS,
  PLE_GATE_VALUE,
} from '../plan-ops';
import { act, act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK, EXP_WORK } from '../work';

export function hcActWork(): f64 {
  return <f64>rowsOf(field(HC_ACT_ROWS)) * <f64>(field(HC_ACT_RANK) + field(HC_ACT_STREAMS)) * EXP_WORK;
}

export function hcAct(): void {
  const rows = rowsOf(field(HC_ACT_ROWS));
  const rank = field(HC_ACT_RANK);
  const streams = field(HC_ACT_STREAMS);
  for (let row = nextUnit(); row < rows; row = nextUnit()) {
    siluOfMean(bufferField(HC_ACT_DOWN) + (<usize>row * <usize>rank << 2), rank, <f32>streams);
    if (field(HC_ACT_INJECT) < 0) continue;
    injectGates(bufferField(HC_ACT_INJECT) + (<usize>(row * streams) << 2), streams, field(HC_ACT_LOWERING));
  }
}

function siluOfMean(x: usize, count: i32, streams: f32): void {
  for (let i = 0; i < count; i += 4) {
    const at = x + (<usize>i << 2);
    store4(at, silu4(act4(f32x4.div(load4(at, count - i), f32x4.splat(streams)))), count - i);
  }
}

function injectGates(x: usize, streams: i32, lowering: i32): void {
  for (let i = 0; i < streams; i += 4) {
    const at = x + (<usize>i << 2);
    const gate = gate4(act4(f32x4.div(load4(at, streams - i), f32x4.splat(<f32>streams))), lowering);
    store4(at, act4(f32x4.mul(f32x4.splat(2), gate)), streams - i);
  }
}

export function hcMixWork(): f64 {
  return <f64>rowsOf(field(HC_MIX_ROWS)) * <f64>field(HC_MIX_HIDDEN) * <f64>field(HC_MIX_STREAMS) * EXP_WORK;
}

export function hcMix(): void {
  const rows = rowsOf(field(HC_MIX_ROWS));
  const hidden = field(HC_MIX_HIDDEN);
  const streams = field(HC_MIX_STREAMS);
  const rowBytes = <usize>streams * <usize>hidden << 2;
  for (let row = nextUnit(); row < rows; row = nextUnit()) {
    const at = <usize>row * rowBytes;
    const out = bufferField(HC_MIX_OUT) + (<usize>row * <usize>hidden << 2);
    mixStreams(bufferField(HC_MIX_MIX) + at, bufferField(HC_MIX_NORMED) + at, out, hidden, streams);
  }
}

function mixStreams(mix: usize, normed: usize, out: usize, hidden: i32, streams: i32): void {
  for (let i = 0; i < hidden; i += 4) {
    const left = hidden - i;
    let at = <usize>i << 2;
    let sum = f32x4.splat(0);
    for (let c = 0; c < streams; c++) {
      sum = f32x4.add(sum, act4(f32x4.mul(sigma4(load4(mix + at, left)), load4(normed + at, left))));
      at += <usize>hidden << 2;
    }
    store4(out + (<usize>i << 2), act4(f32x4.div(sum, f32x4.splat(<f32>streams))), left);
  }
}

export function hcWriteWork(): f64 {
  return <f64>trunkRows * <f64>field(HC_WRITE_HIDDEN) * <f64>field(HC_WRITE_STREAMS) * ELEMENT_WORK;
}

export function hcWrite(): void {
  const hidden = field(HC_WRITE_HIDDEN);
  const streams = field(HC_WRITE_STREAMS);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const y = bufferField(HC_WRITE_Y) + (<usize>row * <usize>hidden << 2);
    for (let stream = row * streams; stream < (row + 1) * streams; stream++) {
      const inject =
        field(HC_WRITE_INJECT) < 0
          ? f32x4.splat(1)
          : v128.load32_splat(bufferField(HC_WRITE_INJECT) + (<usize>stream << 2));
      addScaled(bufferField(HC_WRITE_RESIDUAL) + (<usize>stream * <usize>hidden << 2), inject, y, hidden);
    }
  }
}

function addScaled(residual: usize, scale: v128, y: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    const product = act4(f32x4.mul(scale, load4(y + at, count - i)));
    store4(residual + at, act4(f32x4.add(load4(residual + at, count - i), product)), count - i);
  }
}

const LEAST: f32 = 1e-6;

/** The products of a stream. */
export function pleGateScratch(): usize {
  return SCRATCH_BODY + (<usize>(field(PLE_GATE_HIDDEN) + 3) << 2);
}

export function pleGateWork(): f64 {
  return <f64>trunkRows * <f64>field(PLE_GATE_HIDDEN) * <f64>field(PLE_GATE_STREAMS) * ELEMENT_WORK;
}

export function pleGate(): void {
  const hidden = field(PLE_GATE_HIDDEN);
  const streams = field(PLE_GATE_STREAMS);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const value = bufferField(PLE_GATE_VALUE) + (<usize>row * <usize>hidden << 2);
    for (let stream = row * streams; stream < (row + 1) * streams; stream++) {
      const at = <usize>stream * <usize>hidden << 2;
      const score = f32x4.splat(pleScore(bufferField(PLE_GATE_KEY) + at, bufferField(PLE_GATE_QUERY) + at, hidden));
      const gate = field(PLE_GATE_LOWERING) == 1 ? gate4(score, 1) : sigma4(score);
      scaleRow(gate, value, bufferField(PLE_GATE_OUT) + at, hidden);
    }
  }
}

/** sign(a) * A(sqrt(max(|a|, 1e-6))) of the scaled sum a of products; NaN is kept. */
function pleScore(key: usize, query: usize, hidden: i32): f32 {
  const products = scratch + SCRATCH_BODY;
  for (let i = 0; i < hidden; i += 4) {
    const at = <usize>i << 2;
    v128.store(products + at, act4(f32x4.mul(load4(key + at, hidden - i), load4(query + at, hidden - i))));
  }
  const a = act(act(laneSum(products, hidden)) / floatField(PLE_GATE_ROOT_HIDDEN));
  const magnitude = abs(a) < LEAST ? LEAST : abs(a);
  const root = act(sqrt<f32>(magnitude));
  return a == 0 ? a : copysign(root, a);
}

function scaleRow(scale: v128, x: usize, out: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    store4(out + at, act4(f32x4.mul(scale, load4(x + at, count - i))), count - i);
  }
}
