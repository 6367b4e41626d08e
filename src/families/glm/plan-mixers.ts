/**
 * The token mixers as ops: KDA, and sparse attention over latent rows with its indexer.
 *
 * Invariants: queries are taken to the latent rows, so a token keeps one row for all heads; the buffer of selections keeps
 * the choice of the last full layer, which is what a shared layer after it attends to.
 */
import type { PlanBuffer } from '../../engine/plan/builder.js';
import { normRows, segment } from '../plan-rows.js';
import type { BoundDsa, BoundGlmIndexer, BoundKda } from './bind.js';
import type { GlmPlanContext } from './plan-builder.js';
import type { DsaOffsets, KdaOffsets } from './state-layout.js';

/** Of the indexer's layer norm. */
const LAYER_NORM_EPS = 1e-6;

export function linearAttention(
  c: GlmPlanContext,
  weights: BoundKda,
  offsets: KdaOffsets,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { builder } = c;
  const { hiddenSize, rmsNormEps } = c.config;
  const { heads, headDim: dim, convKernel, decayBound } = c.config.kda;
  const width = heads * dim;
  const qkv = builder.buffer('kda.qkv', 3 * width);
  const conv = builder.buffer('kda.conv', 3 * width);
  const fRank = builder.buffer('kda.f.rank', dim);
  const gRank = builder.buffer('kda.g.rank', dim);
  const f = builder.buffer('kda.f', width);
  const g = builder.buffer('kda.g', width);
  const b = builder.buffer('kda.b', heads);
  const o = builder.buffer('kda.o', width);
  const gated = builder.buffer('kda.gated', width);
  builder.linear('R', x, hiddenSize, [
    segment(weights.q, qkv),
    segment(weights.k, qkv, width),
    segment(weights.v, qkv, 2 * width),
    segment(weights.fA, fRank),
    segment(weights.gA, gRank),
    segment(weights.b, b),
  ]);
  builder.linear('R', fRank, dim, [segment(weights.fB, f)]);
  builder.linear('R', gRank, dim, [segment(weights.gB, g)]);
  builder.op('conv', {
    in: qkv.offset,
    out: conv.offset,
    channels: 3 * width,
    kernel: convKernel,
    dilation: 1,
    weight: weights.conv,
    state: offsets.convTail,
  });
  builder.op('kda', {
    conv: conv.offset,
    f: f.offset,
    b: b.offset,
    out: o.offset,
    heads,
    dim,
    bound: decayBound ?? 0,
    expA: weights.expA,
    dtBias: weights.dtBias,
    state: offsets.recurrent,
  });
  builder.op('gatedNorm', {
    in: o.offset,
    z: g.offset,
    out: gated.offset,
    heads,
    dim,
    weight: weights.norm,
    eps: rmsNormEps,
    silu: 0,
  });
  builder.linear('R', gated, width, [segment(weights.o, y)]);
}

export function latentAttention(
  c: GlmPlanContext,
  weights: BoundDsa,
  offsets: DsaOffsets,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { builder } = c;
  const { heads, queryRank, latentDim, keyDim, valueDim } = c.config.dsa;
  const { poolTokens: block, budgetTokens, tail } = c.config.indexer;
  const budgetBlocks = budgetTokens / block;
  const rank = builder.buffer('dsa.q.rank', queryRank);
  const latent = builder.buffer('dsa.latent', latentDim);
  const q = builder.buffer('dsa.q', heads * keyDim);
  const latentQ = builder.buffer('dsa.q.latent', heads * latentDim);
  const select = builder.buffer('index.select', 1 + budgetBlocks);
  const mixed = builder.buffer('dsa.mixed', heads * latentDim);
  const o = builder.buffer('dsa.o', heads * valueDim);
  const indexer = weights.indexer && indexerBuffers(c, weights.indexer);
  builder.linear('R', x, c.config.hiddenSize, [
    segment(weights.qA, rank),
    segment(weights.kvA, latent),
    ...(indexer?.inputs ?? []),
  ]);
  const norm = { eps: c.config.rmsNormEps };
  normRows(builder, rank, rank, { ...norm, gain: weights.qANorm, group: queryRank });
  normRows(builder, latent, latent, { ...norm, gain: weights.kvANorm, group: latentDim });
  builder.linear('R', rank, queryRank, [segment(weights.qB, q), ...(indexer?.queries ?? [])]);
  builder.op('latentStore', { in: latent.offset, dim: latentDim, latent: offsets.latent });
  builder.op('groupedLinear', {
    rows: 0,
    in: q.offset,
    out: latentQ.offset,
    groups: heads,
    groupIn: keyDim,
    groupOut: latentDim,
    weight: weights.keysTransposed,
    rowStride: latentDim,
    rowOffset: 0,
  });
  if (weights.indexer) choosePools(c, weights.indexer, offsets, select, budgetBlocks);
  builder.op('latentAttention', {
    q: latentQ.offset,
    select: select.offset,
    out: mixed.offset,
    heads,
    dim: latentDim,
    block,
    budgetBlocks,
    tail: tail ? 1 : 0,
    scale: keyDim ** -0.5,
    latent: offsets.latent,
  });
  builder.op('groupedLinear', {
    rows: 0,
    in: mixed.offset,
    out: o.offset,
    groups: heads,
    groupIn: latentDim,
    groupOut: valueDim,
    weight: weights.kvB,
    rowStride: keyDim + valueDim,
    rowOffset: keyDim,
  });
  builder.linear('R', o, heads * valueDim, [segment(weights.o, y)]);
}

/** The indexer's buffers, and how they are filled: from the layer's input, and from the normed query rank. */
function indexerBuffers(c: GlmPlanContext, weights: BoundGlmIndexer) {
  const { heads, headDim: dim } = c.config.indexer;
  const q = c.builder.buffer('index.q', heads * dim);
  const k = c.builder.buffer('index.k', dim);
  const gate = c.builder.buffer('index.gate', dim);
  const headWeights = c.builder.buffer('index.weights', heads);
  return {
    ...{ q, k, gate, headWeights },
    inputs: [segment(weights.k, k), segment(weights.gate, gate), segment(weights.weights, headWeights)],
    queries: [segment(weights.q, q)],
  };
}

/** Norms the index keys, pools those whose pool is complete, and chooses the pools that every query sees. */
function choosePools(
  c: GlmPlanContext,
  weights: BoundGlmIndexer,
  offsets: DsaOffsets,
  select: PlanBuffer,
  budgetBlocks: number,
): void {
  const { heads, headDim: dim, poolTokens } = c.config.indexer;
  const { q, k, gate, headWeights } = indexerBuffers(c, weights);
  c.builder.op('layerNorm', {
    rows: 0,
    in: k.offset,
    out: k.offset,
    width: dim,
    gain: weights.kGain,
    bias: weights.kBias,
    eps: LAYER_NORM_EPS,
  });
  c.builder.op('pool', {
    values: k.offset,
    gates: gate.offset,
    channels: dim,
    window: poolTokens,
    overlap: 0,
    ape: weights.ape,
    gain: -1,
    eps: LAYER_NORM_EPS,
    rope: -1,
    rotary: 0,
    state: offsets.pending,
    pooled: offsets.pools,
  });
  c.builder.op('indexSelect', {
    q: q.offset,
    out: select.offset,
    heads,
    dim,
    block: poolTokens,
    budgetBlocks,
    blocks: offsets.pools,
    weights: headWeights.offset,
    weightScale: heads ** -0.5,
    dotScale: dim ** -0.5,
  });
}
