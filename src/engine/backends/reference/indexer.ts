/**
 * The indexer of sparse attention: raw keys per token, one key per complete block, and the choice of blocks per row.
 *
 * Invariants: a block key depends on its own tokens only and is written when its last token arrives; the choice breaks
 * ties towards the lower block and comes out in ascending order.
 */
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import { greatest } from './rank.js';
import type { OpContext, SequenceRows } from './context.js';

export function indexPrep(op: OpFields<'indexPrep'>, x: OpContext): void {
  const { heads, dim, rotary } = op;
  const { math, call, pageTokens } = x;
  const width = (heads + 1) * dim;
  const qk = x.floats(op.qk, call.rows * width);
  const outQ = x.floats(op.outQ, call.rows * heads * dim);
  const gain = x.weight(op.qGain, 0, dim);
  for (let row = 0; row < call.rows; row++) {
    const position = call.positions[row]!;
    const angles = x.weight(op.rope, position * rotary, rotary);
    for (let h = 0; h < heads; h++) {
      const to = (row * heads + h) * dim;
      math.norm(qk, row * width + h * dim, dim, gain, 0, op.eps, outQ, to);
      math.rope(outQ, to, rotary, angles);
    }
    const raw = qk.subarray(row * width + heads * dim, (row + 1) * width);
    x.writePage(call.sequenceOf(row), position, op.raw, (position % pageTokens) * dim, raw);
  }
}

export function indexBlocks(op: OpFields<'indexBlocks'>, x: OpContext): void {
  const { dim, block, rotary } = op;
  const { math, call, pageTokens } = x;
  const gain = x.weight(op.kGain, 0, dim);
  for (let row = 0; row < call.rows; row++) {
    const position = call.positions[row]!;
    if ((position + 1) % block !== 0) continue;
    const first = position - block + 1;
    const sequence = call.sequenceOf(row);
    const sum = new Float32Array(dim);
    for (let token = first; token <= position; token++) {
      const raw = x.readPage(sequence, token, op.raw, (token % pageTokens) * dim, dim);
      for (let i = 0; i < dim; i++) sum[i] = sum[i]! + raw[i]!;
    }
    const key = sum.map((value) => math.act(fl(value / block)));
    math.norm(key, 0, dim, gain, 0, op.eps, key, 0);
    math.rope(key, 0, rotary, x.weight(op.rope, first * rotary, rotary));
    x.writePage(sequence, position, op.blocks, ((first % pageTokens) / block) * dim, key);
  }
}

export function indexSelect(op: OpFields<'indexSelect'>, x: OpContext): void {
  const { heads, dim, block, budgetBlocks } = op;
  const { call } = x;
  const q = x.floats(op.q, call.rows * heads * dim);
  const out = x.ints(op.out, call.rows * (1 + budgetBlocks));
  for (let row = 0; row < call.rows; row++) {
    const chosen = out.subarray(row * (1 + budgetBlocks), (row + 1) * (1 + budgetBlocks));
    const complete = Math.floor((call.positions[row]! + 1) / block);
    if (complete <= budgetBlocks) {
      chosen[0] = -1;
      continue;
    }
    const query = q.subarray(row * heads * dim, (row + 1) * heads * dim);
    const weights = op.weights >= 0 ? x.floats(op.weights + row * heads, heads) : undefined;
    const scores = Float32Array.from({ length: complete }, (_, b) =>
      blockScore(op, x, call.sequenceOf(row), query, weights, b),
    );
    chosen[0] = budgetBlocks;
    chosen.set(greatest(scores, budgetBlocks), 1);
  }
}

/** The sum over heads of the positive part of query times block key, each with its weight where there are weights. */
function blockScore(
  op: OpFields<'indexSelect'>,
  x: OpContext,
  sequence: SequenceRows,
  query: Float32Array,
  weights: Float32Array | undefined,
  b: number,
): number {
  const { heads, dim, block } = op;
  const first = b * block;
  const key = x.readPage(sequence, first, op.blocks, ((first % x.pageTokens) / block) * dim, dim);
  let score = 0;
  for (let h = 0; h < heads; h++) {
    const product = x.math.dot(query, h * dim, key, 0, dim);
    if (!weights) {
      if (product > 0) score = fl(score + product); // NaN counts as 0
      continue;
    }
    const scaled = fl(product * op.dotScale);
    score = x.math.fma(fl(weights[h]! * op.weightScale), scaled > 0 ? scaled : 0, score);
  }
  return score;
}
