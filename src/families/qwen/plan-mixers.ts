/**
 * The token mixers as ops: gated DeltaNet, and attention with its output gate, sparse (with the indexer) or dense.
 */
import type { PlanBuffer } from '../../engine/plan/builder.js';
import { segment } from '../plan-rows.js';
import type { BoundAttention, BoundLinearAttention } from './bind.js';
import { stashName } from './plan-buffers.js';
import type { PlanContext } from './plan-context.js';
import type { AttentionOffsets, LinearAttentionOffsets } from './state-layout.js';

export function linearAttention(
  c: PlanContext,
  weights: BoundLinearAttention,
  offsets: LinearAttentionOffsets,
  layer: number,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { hiddenSize, rmsNormEps, linearAttention: l } = c.config;
  const valueWidth = l.valueHeads * l.valueHeadDim;
  const { qkv, a, b } = recurrenceInputs(c, layer);
  const z = c.builder.buffer('gdn.z', valueWidth);
  const gated = c.builder.buffer('gdn.gated', valueWidth);
  c.builder.linear('R', x, hiddenSize, [
    segment(weights.qkv, qkv),
    segment(weights.z, z),
    segment(weights.b, b),
    segment(weights.a, a),
  ]);
  const o = recurrence(c, weights, offsets, layer);
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

/** The convolution and the gated delta rule over the rows of `recurrenceInputs`; returns the head outputs. */
export function recurrence(
  c: PlanContext,
  weights: BoundLinearAttention,
  offsets: LinearAttentionOffsets,
  layer: number,
): PlanBuffer {
  const { linearAttention: l } = c.config;
  const { qkv, a, b } = recurrenceInputs(c, layer);
  const conv = c.builder.buffer('gdn.conv', l.convChannels);
  const o = c.builder.buffer('gdn.o', l.valueHeads * l.valueHeadDim);
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
  return o;
}

/** Shared by all layers, or each layer's own where the rows must outlive the plan. */
function recurrenceInputs(c: PlanContext, layer: number) {
  const { convChannels, valueHeads } = c.config.linearAttention;
  const name = (part: 'qkv' | 'a' | 'b'): string => (c.stash ? stashName(layer, part) : `gdn.${part}`);
  return {
    qkv: c.builder.buffer(name('qkv'), convChannels),
    a: c.builder.buffer(name('a'), valueHeads),
    b: c.builder.buffer(name('b'), valueHeads),
  };
}

export function sparseOrDenseAttention(
  c: PlanContext,
  weights: BoundAttention,
  offsets: AttentionOffsets,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { heads, kvHeads, headDim: dim } = c.config.attention;
  const { packed, q, indexQ } = appendToCache(c, weights, offsets, x);
  const indexer = indexerOf(c, weights);
  const o = c.builder.buffer('attn.o', heads * dim);
  const budgetBlocks = indexer ? indexer.budgetTokens / indexer.blockTokens : 0;
  const select = indexer && c.builder.buffer('index.select', 1 + budgetBlocks);
  if (indexer && indexQ && select) {
    c.builder.op('indexSelect', {
      q: indexQ.offset,
      out: select.offset,
      heads: indexer.heads,
      dim: indexer.headDim,
      block: indexer.blockTokens,
      budgetBlocks,
      blocks: offsets.blockKeys,
      weights: -1,
      weightScale: 1,
      dotScale: 1,
    });
  }
  c.builder.op('attention', {
    q: q.offset,
    packed: packed.offset,
    select: select ? select.offset : -1,
    out: o.offset,
    heads,
    kvHeads,
    dim,
    block: indexer?.blockTokens ?? 1,
    budgetBlocks,
    lowering: c.lowering('attention-output'),
    scale: dim ** -0.5,
    keys: offsets.keys,
    values: offsets.values,
  });
  c.builder.linear('R', o, heads * dim, [segment(weights.o, y)]);
}

/** Projections, norms and rope; keys, values, index keys and completed block keys go to the pages. */
export function appendToCache(c: PlanContext, weights: BoundAttention, offsets: AttentionOffsets, x: PlanBuffer) {
  const { config, bound } = c;
  const { heads, kvHeads, headDim: dim, rotaryDim: rotary } = config.attention;
  const indexer = indexerOf(c, weights);
  const packed = c.builder.buffer('attn.packed', heads * 2 * dim);
  const k = c.builder.buffer('attn.k', kvHeads * dim);
  const v = c.builder.buffer('attn.v', kvHeads * dim);
  const q = c.builder.buffer('attn.q', heads * dim);
  const indexQk = indexer && c.builder.buffer('index.qk', (indexer.heads + 1) * indexer.headDim);
  const indexQ = indexer && c.builder.buffer('index.q', indexer.heads * indexer.headDim);
  c.builder.linear('R', x, config.hiddenSize, [
    segment(weights.q, packed),
    segment(weights.k, k),
    segment(weights.v, v),
    ...(indexer && indexQk ? [segment(indexer.weights.qk, indexQk)] : []),
  ]);
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
  if (indexer && indexQk && indexQ) {
    const shared = { eps: config.rmsNormEps, rope: bound.rope, rotary, dim: indexer.headDim };
    c.builder.op('indexPrep', {
      ...shared,
      qk: indexQk.offset,
      outQ: indexQ.offset,
      heads: indexer.heads,
      qGain: indexer.weights.qNorm,
      raw: offsets.rawIndexKeys,
    });
    c.builder.op('indexBlocks', {
      ...shared,
      block: indexer.blockTokens,
      kGain: indexer.weights.kNorm,
      raw: offsets.rawIndexKeys,
      blocks: offsets.blockKeys,
    });
  }
  return { packed, q, indexQ };
}

/** The indexer's sizes and weights, where the model and the layer have one. */
function indexerOf(c: PlanContext, weights: BoundAttention) {
  const indexer = c.config.family === 'qwen4_exp' ? c.config.indexer : undefined;
  return indexer && weights.indexer && { ...indexer, weights: weights.indexer };
}
