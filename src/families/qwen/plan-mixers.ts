/**
 * The token mixers as ops: gated DeltaNet, and attention with its output gate, sparse (with the indexer) or dense.
 */
import type { PlanBuffer } from '../../engine/plan/builder.js';
import type { BoundAttention, BoundLinearAttention } from './bind.js';
import { segment, type PlanContext } from './plan-context.js';
import type { AttentionOffsets, LinearAttentionOffsets } from './state-layout.js';

export function linearAttention(
  c: PlanContext,
  weights: BoundLinearAttention,
  offsets: LinearAttentionOffsets,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { hiddenSize, rmsNormEps, linearAttention: l } = c.config;
  const valueWidth = l.valueHeads * l.valueHeadDim;
  const qkv = c.builder.buffer('gdn.qkv', l.convChannels);
  const conv = c.builder.buffer('gdn.conv', l.convChannels);
  const z = c.builder.buffer('gdn.z', valueWidth);
  const a = c.builder.buffer('gdn.a', l.valueHeads);
  const b = c.builder.buffer('gdn.b', l.valueHeads);
  const o = c.builder.buffer('gdn.o', valueWidth);
  const gated = c.builder.buffer('gdn.gated', valueWidth);
  c.builder.linear('R', x, hiddenSize, [
    segment(weights.qkv, qkv),
    segment(weights.z, z),
    segment(weights.b, b),
    segment(weights.a, a),
  ]);
  c.builder.op('conv', {
    in: qkv.offset,
    out: conv.offset,
    channels: l.convChannels,
    kernel: l.convKernel,
    dilation: 1,
    weight: weights.vectors.conv,
    state: offsets.convTail,
  });
  c.builder.op('gatedDelta', {
    conv: conv.offset,
    a: a.offset,
    b: b.offset,
    out: o.offset,
    keyHeads: l.keyHeads,
    valueHeads: l.valueHeads,
    keyDim: l.keyHeadDim,
    valueDim: l.valueHeadDim,
    negExpA: weights.vectors.negExpA,
    dtBias: weights.vectors.dtBias,
    state: offsets.recurrent,
  });
  c.builder.op('gatedNorm', {
    in: o.offset,
    z: z.offset,
    out: gated.offset,
    heads: l.valueHeads,
    dim: l.valueHeadDim,
    weight: weights.vectors.norm,
    eps: rmsNormEps,
    silu: l.outputGate === 'silu' ? 1 : 0,
  });
  c.builder.linear('R', gated, valueWidth, [segment(weights.out, y)]);
}

export function sparseOrDenseAttention(
  c: PlanContext,
  weights: BoundAttention,
  offsets: AttentionOffsets,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { config, bound } = c;
  const { heads, kvHeads, headDim: dim, rotaryDim: rotary } = config.attention;
  const indexer = config.family === 'qwen4_exp' ? config.indexer : undefined;
  const packed = c.builder.buffer('attn.packed', heads * 2 * dim);
  const k = c.builder.buffer('attn.k', kvHeads * dim);
  const v = c.builder.buffer('attn.v', kvHeads * dim);
  const q = c.builder.buffer('attn.q', heads * dim);
  const o = c.builder.buffer('attn.o', heads * dim);
  const projections = [segment(weights.q, packed), segment(weights.k, k), segment(weights.v, v)];
  const index = indexer && weights.indexer && { ...indexer, weights: weights.indexer };
  const indexQk = index && c.builder.buffer('index.qk', (index.heads + 1) * index.headDim);
  if (index && indexQk) projections.push(segment(index.weights.qk, indexQk));
  c.builder.linear('R', x, config.hiddenSize, projections);
  c.builder.op('attentionPrep', {
    q: packed.offset,
    k: k.offset,
    v: v.offset,
    outQ: q.offset,
    heads,
    kvHeads,
    dim,
    rotary,
    qGain: weights.qNorm,
    kGain: weights.kNorm,
    eps: config.rmsNormEps,
    rope: bound.rope,
    keys: offsets.keys,
    values: offsets.values,
  });
  let select = -1;
  let budgetBlocks = 0;
  if (index && indexQk) {
    const shared = { eps: config.rmsNormEps, rope: bound.rope, rotary, dim: index.headDim };
    const indexQ = c.builder.buffer('index.q', index.heads * index.headDim);
    budgetBlocks = index.budgetTokens / index.blockTokens;
    select = c.builder.buffer('index.select', 1 + budgetBlocks).offset;
    c.builder.op('indexPrep', {
      ...shared,
      qk: indexQk.offset,
      outQ: indexQ.offset,
      heads: index.heads,
      qGain: index.weights.qNorm,
      raw: offsets.rawIndexKeys,
    });
    c.builder.op('indexBlocks', {
      ...shared,
      block: index.blockTokens,
      kGain: index.weights.kNorm,
      raw: offsets.rawIndexKeys,
      blocks: offsets.blockKeys,
    });
    c.builder.op('indexSelect', {
      q: indexQ.offset,
      out: select,
      heads: index.heads,
      dim: index.headDim,
      block: index.blockTokens,
      budgetBlocks,
      blocks: offsets.blockKeys,
    });
  }
  c.builder.op('attention', {
    q: q.offset,
    packed: packed.offset,
    select,
    out: o.offset,
    heads,
    kvHeads,
    dim,
    block: index?.blockTokens ?? 1,
    budgetBlocks,
    lowering: c.lowering('attention-output'),
    scale: dim ** -0.5,
    keys: offsets.keys,
    values: offsets.values,
  });
  c.builder.linear('R', o, heads * dim, [segment(weights.o, y)]);
}
