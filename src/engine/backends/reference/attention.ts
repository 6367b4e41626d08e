/**
 * Attention with an output gate: preparing queries and keys, and the softmax over the visible tokens of every row.
 *
 * Invariants: a row sees tokens up to its own position only; visible tokens are walked in ascending order, and a token's
 * lane in the softmax total is its rank among them, so a selection of all tokens gives the bits of no selection.
 */
import { expF32 } from '../../../numerics/exp.js';
import { laneSum } from '../../../numerics/lanes.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';

export function attentionPrep(op: OpFields<'attentionPrep'>, x: OpContext): void {
  const { heads, kvHeads, dim, rotary } = op;
  const { math, call, pageTokens } = x;
  const q = x.floats(op.q, call.rows * heads * 2 * dim);
  const k = x.floats(op.k, call.rows * kvHeads * dim);
  const v = x.floats(op.v, call.rows * kvHeads * dim);
  const outQ = x.floats(op.outQ, call.rows * heads * dim);
  const qGain = x.weight(op.qGain, 0, dim);
  const kGain = x.weight(op.kGain, 0, dim);
  const key = new Float32Array(dim);
  for (let row = 0; row < call.rows; row++) {
    const position = call.positions[row]!;
    const sequence = call.sequenceOf(row);
    const angles = x.weight(op.rope, position * rotary, rotary);
    for (let h = row * heads; h < (row + 1) * heads; h++) {
      math.norm(q, h * 2 * dim, dim, qGain, 0, op.eps, outQ, h * dim);
      math.rope(outQ, h * dim, rotary, angles);
    }
    for (let h = 0; h < kvHeads; h++) {
      const from = (row * kvHeads + h) * dim;
      math.norm(k, from, dim, kGain, 0, op.eps, key, 0);
      math.rope(key, 0, rotary, angles);
      const element = (h * pageTokens + (position % pageTokens)) * dim;
      x.writePage(sequence, position, op.keys, element, key);
      x.writePage(sequence, position, op.values, element, v.subarray(from, from + dim));
    }
  }
}

export function attention(op: OpFields<'attention'>, x: OpContext): void {
  const { heads, kvHeads, dim } = op;
  const { call } = x;
  const q = x.floats(op.q, call.rows * heads * dim);
  const packed = x.floats(op.packed, call.rows * heads * 2 * dim);
  const out = x.floats(op.out, call.rows * heads * dim);
  const group = heads / kvHeads;
  for (let row = 0; row < call.rows; row++) {
    const tokens = visibleTokens(op, x, row);
    for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
      const keys = readHead(op, x, row, tokens, kvHead, op.keys);
      const values = readHead(op, x, row, tokens, kvHead, op.values);
      for (let h = kvHead * group; h < (kvHead + 1) * group; h++) {
        const at = (row * heads + h) * dim;
        const mixed = attend(op, x, q.subarray(at, at + dim), keys, values);
        const gates = packed.subarray((row * heads + h) * 2 * dim + dim);
        for (let i = 0; i < dim; i++) out[at + i] = x.math.act(fl(mixed[i]! * x.math.gate(gates[i]!, op.lowering)));
      }
    }
  }
}

/** Positions that a row may look at, ascending. */
function visibleTokens(op: OpFields<'attention'>, x: OpContext, row: number): number[] {
  const visible = x.call.positions[row]! + 1;
  const selected = op.select >= 0 ? x.ints(op.select + row * (1 + op.budgetBlocks), 1 + op.budgetBlocks) : undefined;
  if (!selected || selected[0] === -1) return Array.from({ length: visible }, (_, token) => token);
  const tokens: number[] = [];
  for (const block of selected.subarray(1, 1 + selected[0]!)) {
    for (let i = 0; i < op.block; i++) tokens.push(block * op.block + i);
  }
  for (let token = Math.floor(visible / op.block) * op.block; token < visible; token++) tokens.push(token);
  return tokens;
}

/** Keys or values of one kv head for these tokens: [tokens, dim]. */
function readHead(
  op: OpFields<'attention'>,
  x: OpContext,
  row: number,
  tokens: readonly number[],
  kvHead: number,
  base: number,
): Float32Array {
  const sequence = x.call.sequenceOf(row);
  const rows = new Float32Array(tokens.length * op.dim);
  tokens.forEach((token, n) => {
    const element = (kvHead * x.pageTokens + (token % x.pageTokens)) * op.dim;
    rows.set(x.readPage(sequence, token, base, element, op.dim), n * op.dim);
  });
  return rows;
}

/**
 * Softmax attention of one query over keys and values [n, dim]; the mixed value, A-rounded. A sink takes part in the
 * softmax behind the last key and is no value.
 */
export function attend(
  { dim, scale }: { readonly dim: number; readonly scale: number },
  x: OpContext,
  query: Float32Array,
  keys: Float32Array,
  values: Float32Array,
  sink?: number,
): Float32Array {
  const { math } = x;
  const count = keys.length / dim;
  const weights = new Float32Array(sink === undefined ? count : count + 1);
  for (let n = 0; n < count; n++) {
    weights[n] = math.act(fl(math.act(math.dot(query, 0, keys, n * dim, dim)) * scale));
  }
  if (sink !== undefined) weights[count] = sink;
  const most = weights.reduce((m, score) => (score > m ? score : m), Number.NEGATIVE_INFINITY);
  for (let n = 0; n < weights.length; n++) weights[n] = expF32(fl(weights[n]! - most));
  const total = laneSum(weights, 0, weights.length);
  const mixed = new Float32Array(dim);
  for (let n = 0; n < count; n++) {
    const p = math.act(fl(weights[n]! / total));
    for (let i = 0; i < dim; i++) mixed[i] = math.fma(p, values[n * dim + i]!, mixed[i]!);
  }
  return mixed.map((value) => math.act(value));
}
