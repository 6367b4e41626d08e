/**
 * Manifold hyper-connections: the weights of a row, the read of its streams and the write back into all of them. A unit of
 * work is a row.
 *
 * Invariants: sums run over streams and over the mixing matrix in ascending order; a write loads all streams of four
 * columns before it stores the first.
 */
import { bufferField, field, floatField, rowsOf, scratch, SCRATCH_BODY, trunkRows, weightField } from '../context';
import { expF32x4, sigmoidF32x4 } from '../exp';
import {
  MHC_SUM_HIDDEN,
  MHC_SUM_OUT,
  MHC_SUM_RESIDUAL,
  MHC_SUM_ROWS,
  MHC_SUM_STREAMS,
  MHC_SUM_WEIGHTS,
  MHC_SUM_WEIGHTS_WIDTH,
  MHC_WEIGHTS_BASE,
  MHC_WEIGHTS_EPS,
  MHC_WEIGHTS_IN,
  MHC_WEIGHTS_ITERATIONS,
  MHC_WEIGHTS_OUT,
  MHC_WEIGHTS_ROWS,
  MHC_WEIGHTS_SCALE,
  MHC_WEIGHTS_STREAMS,
  MHC_WRITE_HIDDEN,
  MHC_WRITE_RESIDUAL,
  MHC_WRITE_STREAMS,
  MHC_WRITE_WEIGHTS,
  MHC_WRITE_WEIGHTS_WIDTH,
  MHC_WRITE_Y,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK, EXP_WORK } from '../work';

/** Most streams, by the op table's check. */
const MOST_STREAMS: i32 = 8;

/** A row of weights. */
export function mhcWeightsScratch(): usize {
  return SCRATCH_BODY + (<usize>((2 + MOST_STREAMS) * MOST_STREAMS + 3) << 2);
}

export function mhcWeightsWork(): f64 {
  const streams = <f64>field(MHC_WEIGHTS_STREAMS);
  return <f64>rowsOf(field(MHC_WEIGHTS_ROWS)) * streams * streams * <f64>(field(MHC_WEIGHTS_ITERATIONS) + 2) * EXP_WORK;
}

export function mhcWeights(): void {
  const rows = rowsOf(field(MHC_WEIGHTS_ROWS));
  const streams = field(MHC_WEIGHTS_STREAMS);
  const width = field(MHC_WEIGHTS_ITERATIONS) == 0 ? streams : (2 + streams) * streams;
  for (let row = nextUnit(); row < rows; row = nextUnit()) {
    const at = <usize>(row * width) << 2;
    weightsOfRow(bufferField(MHC_WEIGHTS_IN) + at, bufferField(MHC_WEIGHTS_OUT) + at, streams, width);
  }
}

function weightsOfRow(x: usize, out: usize, streams: i32, width: i32): void {
  const v = scratch + SCRATCH_BODY;
  const scale = weightField(MHC_WEIGHTS_SCALE);
  const base = weightField(MHC_WEIGHTS_BASE);
  const eps = floatField(MHC_WEIGHTS_EPS);
  const iterations = field(MHC_WEIGHTS_ITERATIONS);
  for (let i = 0; i < width; i++) {
    const at = <usize>i << 2;
    const part = <usize>min(i / streams, 2) << 2;
    store<f32>(v + at, load<f32>(x + at) * load<f32>(scale + part) + load<f32>(base + at));
  }
  const gates = iterations == 0 ? streams : 2 * streams;
  for (let h = 0; h < gates; h++) {
    const at = <usize>h << 2;
    const s = f32x4.extract_lane(sigmoidF32x4(v128.load32_splat(v + at)), 0);
    store<f32>(out + at, h < streams ? s + eps : 2 * s);
  }
  if (iterations == 0) return;
  const comb = v + (<usize>(2 * streams) << 2);
  mixing(comb, streams, iterations, eps);
  memory.copy(out + (<usize>(2 * streams) << 2), comb, <usize>(streams * streams) << 2);
}

/** In place: the softmax of every row + eps, then columns, then iterations - 1 times rows and columns. */
function mixing(comb: usize, streams: i32, iterations: i32, eps: f32): void {
  const rowBytes = <usize>streams << 2;
  for (let j = 0; j < streams; j++) softmaxRow(comb + <usize>j * rowBytes, streams, eps);
  for (let k = 0; k < streams; k++) normalise(comb + (<usize>k << 2), rowBytes, streams, eps);
  for (let i = 1; i < iterations; i++) {
    for (let j = 0; j < streams; j++) normalise(comb + <usize>j * rowBytes, 4, streams, eps);
    for (let k = 0; k < streams; k++) normalise(comb + (<usize>k << 2), rowBytes, streams, eps);
  }
}

function softmaxRow(row: usize, streams: i32, eps: f32): void {
  let most: f32 = -Infinity;
  for (let k = 0; k < streams; k++) {
    const value = load<f32>(row + (<usize>k << 2));
    if (value > most) most = value;
  }
  let total: f32 = 0;
  for (let k = 0; k < streams; k++) {
    const at = row + (<usize>k << 2);
    const e = f32x4.extract_lane(expF32x4(f32x4.splat(load<f32>(at) - most)), 0);
    store<f32>(at, e);
    total += e;
  }
  for (let k = 0; k < streams; k++) {
    const at = row + (<usize>k << 2);
    store<f32>(at, load<f32>(at) / total + eps);
  }
}

/** Divides `count` elements, `stride` bytes apart, by their sum + eps. */
function normalise(from: usize, stride: usize, count: i32, eps: f32): void {
  const end = from + <usize>count * stride;
  let sum: f32 = 0;
  for (let at = from; at < end; at += stride) sum += load<f32>(at);
  const divisor = sum + eps;
  for (let at = from; at < end; at += stride) store<f32>(at, load<f32>(at) / divisor);
}

export function mhcSumWork(): f64 {
  return <f64>rowsOf(field(MHC_SUM_ROWS)) * <f64>field(MHC_SUM_HIDDEN) * <f64>field(MHC_SUM_STREAMS) * ELEMENT_WORK;
}

export function mhcSum(): void {
  const rows = rowsOf(field(MHC_SUM_ROWS));
  const hidden = field(MHC_SUM_HIDDEN);
  const streams = field(MHC_SUM_STREAMS);
  for (let row = nextUnit(); row < rows; row = nextUnit()) {
    const weights: usize =
      field(MHC_SUM_WEIGHTS) < 0
        ? 0
        : bufferField(MHC_SUM_WEIGHTS) + (<usize>(row * field(MHC_SUM_WEIGHTS_WIDTH)) << 2);
    const residual = bufferField(MHC_SUM_RESIDUAL) + (<usize>(row * streams) * <usize>hidden << 2);
    sumStreams(weights, residual, bufferField(MHC_SUM_OUT) + (<usize>row * <usize>hidden << 2), hidden, streams);
  }
}

function sumStreams(weights: usize, residual: usize, out: usize, hidden: i32, streams: i32): void {
  for (let i = 0; i < hidden; i += 4) {
    const left = hidden - i;
    let at = residual + (<usize>i << 2);
    let sum = f32x4.splat(0);
    for (let h = 0; h < streams; h++) {
      let x = load4(at, left);
      if (weights != 0) x = f32x4.mul(v128.load32_splat(weights + (<usize>h << 2)), x);
      sum = f32x4.add(x, sum);
      at += <usize>hidden << 2;
    }
    store4(out + (<usize>i << 2), act4(weights != 0 ? sum : f32x4.div(sum, f32x4.splat(<f32>streams))), left);
  }
}

/** Four columns of every stream. */
export function mhcWriteScratch(): usize {
  return SCRATCH_BODY + (<usize>MOST_STREAMS << 4);
}

export function mhcWriteWork(): f64 {
  const streams = <f64>field(MHC_WRITE_STREAMS);
  return <f64>trunkRows * <f64>field(MHC_WRITE_HIDDEN) * streams * streams * ELEMENT_WORK;
}

export function mhcWrite(): void {
  const hidden = field(MHC_WRITE_HIDDEN);
  const streams = field(MHC_WRITE_STREAMS);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const weights = bufferField(MHC_WRITE_WEIGHTS) + (<usize>(row * field(MHC_WRITE_WEIGHTS_WIDTH)) << 2);
    const residual = bufferField(MHC_WRITE_RESIDUAL) + (<usize>(row * streams) * <usize>hidden << 2);
    writeStreams(residual, weights, bufferField(MHC_WRITE_Y) + (<usize>row * <usize>hidden << 2), hidden, streams);
  }
}

function writeStreams(residual: usize, weights: usize, y: usize, hidden: i32, streams: i32): void {
  const old = scratch + SCRATCH_BODY;
  const post = weights + (<usize>streams << 2);
  const comb = weights + (<usize>(2 * streams) << 2);
  for (let i = 0; i < hidden; i += 4) {
    const left = hidden - i;
    const column = <usize>i << 2;
    const fresh = load4(y + column, left);
    for (let j = 0; j < streams; j++) {
      v128.store(old + (<usize>j << 4), load4(residual + (<usize>j * <usize>hidden << 2) + column, left));
    }
    for (let k = 0; k < streams; k++) {
      let sum = f32x4.mul(v128.load32_splat(post + (<usize>k << 2)), fresh);
      for (let j = 0; j < streams; j++) {
        const weight = v128.load32_splat(comb + (<usize>(j * streams + k) << 2));
        sum = f32x4.add(f32x4.mul(weight, v128.load(old + (<usize>j << 4))), sum);
      }
      store4(residual + (<usize>k * <usize>hidden << 2) + column, act4(sum), left);
    }
  }
}
