/**
 * Mixture of experts: routing, grouping rows by expert, the experts' two halves, and the weighted sum with the shared
 * expert. A pair is row * topK + slot; slots of a row are in ascending expert order.
 *
 * Invariants: every pair is computed as if alone, so the grouping decides only which weights are read when.
 */
import { expF32, sigmoidF32, softplusF64 } from '../../../numerics/exp.js';
import { laneSum } from '../../../numerics/lanes.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';
import { greatest, rank } from './rank.js';

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

const ROUTER_EPS = fl(1e-20);

export function scoreRouter(op: OpFields<'scoreRouter'>, x: OpContext): void {
  const { experts, topK } = op;
  const logits = x.floats(op.logits, x.call.rows * experts);
  const bias = op.bias >= 0 ? x.weight(op.bias, 0, experts) : undefined;
  const outIndex = x.ints(op.outIndex, x.call.rows * topK);
  const outWeight = x.floats(op.outWeight, x.call.rows * topK);
  for (let row = 0; row < x.call.rows; row++) {
    const scores = logits.subarray(row * experts, (row + 1) * experts).map(op.score === 0 ? sigmoidF32 : rootSoftplus);
    const chosen =
      op.table >= 0
        ? tableExperts(op, x, x.call.tokens[row]!)
        : chooseInGroups(
            op,
            scores.map((s, e) => (bias ? fl(s + bias[e]!) : s)),
          );
    const sum = chosen.reduce((total, expert) => fl(total + scores[expert]!), 0);
    outIndex.set(chosen, row * topK);
    chosen.forEach((expert, slot) => {
      const s = scores[expert]!;
      const weight = op.normalise === 1 ? fl(s / fl(sum + ROUTER_EPS)) : s;
      outWeight[row * topK + slot] = x.math.act(fl(weight * op.scaling));
    });
  }
}

const rootSoftplus = (logit: number): number => fl(Math.sqrt(fl(softplusF64(logit))));

/** The experts of a token by the table, ascending. */
function tableExperts(op: OpFields<'scoreRouter'>, x: OpContext, token: number): number[] {
  const words = x.weight(op.table, token * op.topK, op.topK);
  const listed = new Int32Array(words.buffer, words.byteOffset, op.topK);
  return Array.from(listed, (expert) => Math.min(Math.max(expert, 0), op.experts - 1)).sort((a, b) => a - b);
}

/** The topK experts of greatest value among those of the kept groups, ascending. */
function chooseInGroups({ experts, topK, groups, groupsKept }: OpFields<'scoreRouter'>, t: Float32Array): number[] {
  if (groups === 1) return greatest(t, topK);
  const size = experts / groups;
  const values = Float32Array.from({ length: groups }, (_, g) => {
    const [first = 0, second] = Array.from(t.subarray(g * size, (g + 1) * size), rank).sort((a, b) => (a > b ? -1 : a < b ? 1 : 0)); // prettier-ignore
    return second === undefined ? first : fl(first + second);
  });
  const candidates = greatest(values, groupsKept).flatMap((g) => Array.from({ length: size }, (_, i) => g * size + i));
  const among = greatest(
    Float32Array.from(candidates, (expert) => t[expert]!),
    topK,
  );
  return among.map((at) => candidates[at]!);
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
        const g = math.act(math.dot(gate, 0, input, from, hidden));
        const u = math.act(math.dot(up, 0, input, from, hidden));
        out[pair * width + i] = math.act(math.swiglu(g, u, op.limit));
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
  const sharedGate = op.sharedGate >= 0 ? x.floats(op.sharedGate, rows) : undefined;
  const out = x.floats(op.out, rows * hidden);
  for (let row = 0; row < rows; row++) {
    const gate = sharedGate?.[row];
    const s = gate === undefined ? 1 : op.lowering === 1 ? math.gate(gate, 1) : math.sigma(gate);
    for (let i = 0; i < hidden; i++) {
      let y = 0;
      for (let pair = row * topK; pair < (row + 1) * topK; pair++)
        y = math.fma(weights[pair]!, down[pair * hidden + i]!, y);
      const at = row * hidden + i;
      out[at] = math.act(fl(math.act(y) + math.act(fl(s * shared[at]!))));
    }
  }
}
