/**
 * Mixture of experts: routing, grouping rows by expert, the experts' two halves, and the weighted sum with the shared
 * expert. A pair is row * topK + slot; slots of a row are in ascending expert order.
 *
 * Invariants: every pair is computed as if alone, so the grouping decides only which weights are read when.
 */
import { expF32 } from '../../../numerics/exp.js';
import { laneSum } from '../../../numerics/lanes.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';

export function router(op: OpFields<'router'>, x: OpContext): void {
  const { experts, topK } = op;
  const logits = x.floats(op.logits, x.call.rows * experts);
  const outIndex = x.ints(op.outIndex, x.call.rows * topK);
  const outWeight = x.floats(op.outWeight, x.call.rows * topK);
  for (let row = 0; row < x.call.rows; row++) {
    const l = logits.subarray(row * experts, (row + 1) * experts);
    const most = l.reduce((m, value) => (value > m ? value : m), Number.NEGATIVE_INFINITY);
    const weights = l.map((value) => expF32(fl(value - most)));
    const total = laneSum(weights, 0, experts);
    const chosen = greatest(l, topK);
    const p = chosen.map((expert) => fl(weights[expert]! / total));
    const sum = p.reduce((s, value) => fl(s + value), 0);
    outIndex.set(chosen, row * topK);
    outWeight.set(
      p.map((value) => x.math.act(op.normalise === 1 ? fl(value / sum) : value)),
      row * topK,
    );
  }
}

/** Indices of the `count` greatest values, ascending; equal values: lower index; NaN ranks as -inf. */
function greatest(values: Float32Array, count: number): number[] {
  const rank = (index: number): number => (Number.isNaN(values[index]) ? Number.NEGATIVE_INFINITY : values[index]!);
  const before = (a: number, b: number): number => (rank(a) > rank(b) ? -1 : rank(a) < rank(b) ? 1 : a - b);
  return Array.from(values.keys())
    .sort(before)
    .slice(0, count)
    .sort((a, b) => a - b);
}

export function moeGroup(op: OpFields<'moeGroup'>, x: OpContext): void {
  const { experts, topK } = op;
  const pairs = x.call.rows * topK;
  const index = x.ints(op.index, pairs);
  const offsets = x.ints(op.outOffsets, experts + 1);
  const list = x.ints(op.outList, pairs);
  let filled = 0;
  for (let expert = 0; expert < experts; expert++) {
    offsets[expert] = filled;
    for (let pair = 0; pair < pairs; pair++) if (index[pair] === expert) list[filled++] = pair;
  }
  offsets[experts] = filled;
}

/** Calls `visit` with every expert that has pairs, and its pairs. */
function forExperts(
  op: { readonly offsets: number; readonly list: number; readonly experts: number; readonly topK: number },
  x: OpContext,
  visit: (expert: number, pairs: Int32Array) => void,
): void {
  const offsets = x.ints(op.offsets, op.experts + 1);
  const list = x.ints(op.list, x.call.rows * op.topK);
  for (let expert = 0; expert < op.experts; expert++) {
    const pairs = list.subarray(offsets[expert], offsets[expert + 1]);
    if (pairs.length > 0) visit(expert, pairs);
  }
}

export function moeUp(op: OpFields<'moeUp'>, x: OpContext): void {
  const { hidden, topK, width } = op;
  const { math } = x;
  const input = x.floats(op.in, x.call.rows * hidden);
  const out = x.floats(op.out, x.call.rows * topK * width);
  forExperts(op, x, (expert, pairs) => {
    for (let i = 0; i < width; i++) {
      const gate = x.weight(op.gate + expert, i * hidden, hidden);
      const up = x.weight(op.up + expert, i * hidden, hidden);
      for (const pair of pairs) {
        const from = Math.floor(pair / topK) * hidden;
        const gated = math.silu(math.act(math.dot(gate, 0, input, from, hidden)));
        out[pair * width + i] = math.act(fl(gated * math.act(math.dot(up, 0, input, from, hidden))));
      }
    }
  });
}

export function moeDown(op: OpFields<'moeDown'>, x: OpContext): void {
  const { width, topK, hidden } = op;
  const input = x.floats(op.in, x.call.rows * topK * width);
  const out = x.floats(op.out, x.call.rows * topK * hidden);
  forExperts(op, x, (expert, pairs) => {
    for (let o = 0; o < hidden; o++) {
      const taps = x.weight(op.down + expert, o * width, width);
      for (const pair of pairs) out[pair * hidden + o] = x.math.act(x.math.dot(taps, 0, input, pair * width, width));
    }
  });
}

export function moeCombine(op: OpFields<'moeCombine'>, x: OpContext): void {
  const { hidden, topK } = op;
  const { math } = x;
  const { rows } = x.call;
  const down = x.floats(op.down, rows * topK * hidden);
  const weights = x.floats(op.weights, rows * topK);
  const shared = x.floats(op.shared, rows * hidden);
  const sharedGate = x.floats(op.sharedGate, rows);
  const out = x.floats(op.out, rows * hidden);
  for (let row = 0; row < rows; row++) {
    const s = op.lowering === 1 ? math.gate(sharedGate[row]!, 1) : math.sigma(sharedGate[row]!);
    for (let i = 0; i < hidden; i++) {
      let y = 0;
      for (let pair = row * topK; pair < (row + 1) * topK; pair++)
        y = math.fma(weights[pair]!, down[pair * hidden + i]!, y);
      const at = row * hidden + i;
      out[at] = math.act(fl(math.act(y) + math.act(fl(s * shared[at]!))));
    }
  }
}
