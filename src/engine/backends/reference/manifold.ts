/**
 * Manifold hyper-connections: parallel residual streams that are read, written and mixed by weights of each row`s own,
 * the mixing matrix nearly doubly stochastic.
 *
 * Invariants: rows and streams are walked in ascending order; the write reads all streams of an element before it stores
 * the first.
 */
import { expF32, sigmoidF32 } from '../../../numerics/exp.js';
import { mhcWidth } from '../../plan/extents.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';

export function mhcWeights(op: OpFields<'mhcWeights'>, x: OpContext): void {
  const { streams, iterations, eps } = op;
  const rows = x.rowCount(op.rows);
  const width = mhcWidth(op);
  const input = x.floats(op.in, rows * width);
  const out = x.floats(op.out, rows * width);
  const scale = x.weight(op.scale, 0, iterations === 0 ? 1 : 3);
  const base = x.weight(op.base, 0, width);
  for (let from = 0; from < rows * width; from += width) {
    const v = Float32Array.from({ length: width }, (_, i) => {
      const part = Math.min(Math.floor(i / streams), 2);
      return fl(fl(input[from + i]! * scale[part]!) + base[i]!);
    });
    for (let h = 0; h < streams; h++) out[from + h] = fl(sigmoidF32(v[h]!) + eps);
    if (iterations === 0) continue;
    for (let h = streams; h < 2 * streams; h++) out[from + h] = fl(2 * sigmoidF32(v[h]!));
    const comb = v.slice(2 * streams);
    for (let j = 0; j < streams; j++) softmaxRow(comb.subarray(j * streams, (j + 1) * streams), eps);
    normaliseColumns(comb, streams, eps);
    for (let i = 1; i < iterations; i++) {
      normaliseRows(comb, streams, eps);
      normaliseColumns(comb, streams, eps);
    }
    out.set(comb, from + 2 * streams);
  }
}

/** In place: softmax, then + eps. */
function softmaxRow(row: Float32Array, eps: number): void {
  const most = row.reduce((m, value) => (value > m ? value : m), Number.NEGATIVE_INFINITY);
  for (let k = 0; k < row.length; k++) row[k] = expF32(fl(row[k]! - most));
  const total = row.reduce((sum, e) => fl(sum + e), 0);
  for (let k = 0; k < row.length; k++) row[k] = fl(fl(row[k]! / total) + eps);
}

function normaliseRows(comb: Float32Array, streams: number, eps: number): void {
  for (let j = 0; j < streams; j++) normalise(comb, j * streams, 1, streams, eps);
}

function normaliseColumns(comb: Float32Array, streams: number, eps: number): void {
  for (let k = 0; k < streams; k++) normalise(comb, k, streams, streams, eps);
}

/** Divides `count` elements, `stride` apart, by their sum + eps. */
function normalise(values: Float32Array, from: number, stride: number, count: number, eps: number): void {
  let sum = 0;
  for (let i = 0; i < count; i++) sum = fl(sum + values[from + i * stride]!);
  const divisor = fl(sum + eps);
  for (let i = 0; i < count; i++) values[from + i * stride] = fl(values[from + i * stride]! / divisor);
}

export function mhcSum(op: OpFields<'mhcSum'>, x: OpContext): void {
  const { hidden, streams, weightsWidth } = op;
  const rows = x.rowCount(op.rows);
  const weights = op.weights >= 0 ? x.floats(op.weights, rows * weightsWidth) : undefined;
  const residual = x.floats(op.residual, rows * streams * hidden);
  const out = x.floats(op.out, rows * hidden);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < hidden; i++) {
      let sum = 0;
      for (let h = 0; h < streams; h++) {
        const element = residual[(row * streams + h) * hidden + i]!;
        sum = weights ? x.math.fma(weights[row * weightsWidth + h]!, element, sum) : fl(sum + element);
      }
      out[row * hidden + i] = x.math.act(weights ? sum : fl(sum / streams));
    }
  }
}

export function mhcWrite(op: OpFields<'mhcWrite'>, x: OpContext): void {
  const { hidden, streams, weightsWidth } = op;
  const { rows } = x.call;
  const residual = x.floats(op.residual, rows * streams * hidden);
  const weights = x.floats(op.weights, rows * weightsWidth);
  const y = x.floats(op.y, rows * hidden);
  for (let row = 0; row < rows; row++) {
    const of = row * weightsWidth;
    for (let i = 0; i < hidden; i++) {
      const old = Array.from({ length: streams }, (_, j) => residual[(row * streams + j) * hidden + i]!);
      for (let k = 0; k < streams; k++) {
        let sum = fl(weights[of + streams + k]! * y[row * hidden + i]!);
        old.forEach((element, j) => {
          sum = x.math.fma(weights[of + 2 * streams + j * streams + k]!, element, sum);
        });
        residual[(row * streams + k) * hidden + i] = x.math.act(sum);
      }
    }
  }
}
