/**
 * Ops that treat every row by itself: embedding, norm, linear maps, element-wise sums and products, copies.
 *
 * Invariants: a row's result depends on that row alone; linear walks weights outside and rows inside only to read each
 * weight row once, which changes no sum.
 */
import { laneSum } from '../../../numerics/lanes.js';
import type { LinearSegmentFields, OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';

export function embed(op: OpFields<'embed'>, x: OpContext): void {
  x.call.tokens.forEach((token, row) => embedRow(op, x, token, row));
}

export function embedGreedy(op: OpFields<'embedGreedy'>, x: OpContext): void {
  const logits = x.floats(op.logits, x.call.rows * op.vocab);
  const ids = x.ints(op.outIds, x.call.rows);
  for (let row = 0; row < x.call.rows; row++) {
    let greatest = -Infinity;
    ids[row] = 0;
    for (let id = 0; id < op.vocab; id++) {
      const value = logits[row * op.vocab + id]!;
      if (!(value > greatest)) continue;
      greatest = value;
      ids[row] = id;
    }
    embedRow(op, x, ids[row]!, row);
  }
}

function embedRow(op: OpFields<'embed'> | OpFields<'embedGreedy'>, x: OpContext, token: number, row: number): void {
  const { width, copies } = op;
  const out = x.floats(op.out, x.call.rows * width * copies);
  const rounded = x.weight(op.weight, token * width, width).map((value) => x.math.act(value));
  for (let c = 0; c < copies; c++) out.set(rounded, (row * copies + c) * width);
}

export function norm(op: OpFields<'norm'>, x: OpContext): void {
  const { width, group } = op;
  const elements = x.rowCount(op.rows) * width;
  const source = x.floats(op.in, elements);
  const out = x.floats(op.out, elements);
  const gain = op.gain >= 0 ? x.weight(op.gain, 0, width) : undefined;
  for (let from = 0; from < elements; from += group) {
    x.math.norm(source, from, group, gain, from % width, op.eps, out, from);
  }
}

export function linear(op: OpFields<'linear'>, x: OpContext, segments: readonly LinearSegmentFields[]): void {
  const rows = x.rowCount(op.rows);
  const input = x.floats(op.in, rows * op.inWidth);
  for (const { weight, bias, out, outWidth, outColumn, outs } of segments) {
    const target = x.floats(out, rows * outWidth);
    const addends = bias >= 0 ? x.weight(bias, 0, outs) : undefined;
    for (let o = 0; o < outs; o++) {
      const taps = x.weight(weight, o * op.inWidth, op.inWidth);
      for (let row = 0; row < rows; row++) {
        const sum = x.math.dot(taps, 0, input, row * op.inWidth, op.inWidth);
        target[row * outWidth + outColumn + o] = x.math.act(addends ? fl(sum + addends[o]!) : sum);
      }
    }
  }
}

export function groupedLinear(op: OpFields<'groupedLinear'>, x: OpContext): void {
  const { groups, groupIn, groupOut, rowStride, rowOffset } = op;
  const rows = x.rowCount(op.rows);
  const input = x.floats(op.in, rows * groups * groupIn);
  const out = x.floats(op.out, rows * groups * groupOut);
  for (let g = 0; g < groups; g++) {
    for (let o = 0; o < groupOut; o++) {
      const taps = x.weight(op.weight, (g * rowStride + rowOffset + o) * groupIn, groupIn);
      for (let row = 0; row < rows; row++) {
        const sum = x.math.dot(taps, 0, input, (row * groups + g) * groupIn, groupIn);
        out[(row * groups + g) * groupOut + o] = x.math.act(sum);
      }
    }
  }
}

export function layerNorm(op: OpFields<'layerNorm'>, x: OpContext): void {
  const { width } = op;
  const elements = x.rowCount(op.rows) * width;
  const source = x.floats(op.in, elements);
  const out = x.floats(op.out, elements);
  const gain = x.weight(op.gain, 0, width);
  const bias = x.weight(op.bias, 0, width);
  for (let from = 0; from < elements; from += width) {
    const mean = fl(laneSum(source, from, width) / width);
    const centred = source.slice(from, from + width).map((value) => fl(value - mean));
    const scale = x.math.normScale(centred, 0, width, op.eps);
    for (let i = 0; i < width; i++) {
      out[from + i] = x.math.act(fl(fl(fl(centred[i]! * scale) * gain[i]!) + bias[i]!));
    }
  }
}

export function swiglu(op: OpFields<'swiglu'>, x: OpContext): void {
  const elements = x.call.rows * op.width;
  const gate = x.floats(op.gate, elements);
  const up = x.floats(op.up, elements);
  const out = x.floats(op.out, elements);
  for (let i = 0; i < elements; i++) out[i] = x.math.act(x.math.swiglu(gate[i]!, up[i]!, op.limit));
}

export function add(op: OpFields<'add'>, x: OpContext): void {
  const elements = x.rowCount(op.rows) * op.width;
  const a = x.floats(op.a, elements);
  const b = x.floats(op.b, elements);
  const out = x.floats(op.out, elements);
  for (let i = 0; i < elements; i++) out[i] = x.math.act(fl(a[i]! + b[i]!));
}

export function gather(op: OpFields<'gather'>, x: OpContext): void {
  const source = x.floats(op.in, x.call.rows * op.width);
  const out = x.floats(op.out, x.call.outRows.length * op.width);
  x.call.outRows.forEach((row, m) => out.set(source.subarray(row * op.width, (row + 1) * op.width), m * op.width));
}

export function tap(op: OpFields<'tap'>, x: OpContext): void {
  const elements = x.call.rows * op.width;
  x.floats(op.out, elements).set(x.floats(op.in, elements));
}
