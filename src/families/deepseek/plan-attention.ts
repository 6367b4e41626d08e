/**
 * Attention as ops: low-rank queries, one row that is key and value of all heads, a window of recent rows, compressed rows
 * of the past with or without an indexer, and a grouped low-rank output.
 */
import type { LinearSegment, PlanBuffer } from '../../engine/plan/builder.js';
import { normRows, segment } from '../plan-rows.js';
import type { BoundAttention, BoundCompressor, BoundIndexer } from './bind.js';
import type { DeepseekLayerType } from './config-types.js';
import type { DeepseekPlanContext } from './plan-context.js';
import type { CompressorOffsets, LayerOffsets } from './state-layout.js';

/** What a compressor's projections leave in the workspace. */
interface RawRows {
  readonly values: PlanBuffer;
  readonly gates: PlanBuffer;
}

export function attention(
  c: DeepseekPlanContext,
  type: DeepseekLayerType,
  weights: BoundAttention,
  offsets: LayerOffsets,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { builder, config } = c;
  const { heads, headDim, queryRank, outputGroups, outputRank, window } = config.attention;
  const width = heads * headDim;
  const rank = builder.buffer('attn.qr', queryRank);
  const kv = builder.buffer('attn.kv', headDim);
  const q = builder.buffer('attn.q', width);
  const o = builder.buffer('attn.o', width);
  const raw = weights.compressor && rawRows(c, type, weights.compressor);
  const indexed = weights.indexer && indexBuffers(c, weights.indexer);
  builder.linear('R', x, config.hiddenSize, [
    segment(weights.qDown, rank),
    segment(weights.kv, kv),
    ...(raw && weights.compressor ? compressorSegments(weights.compressor, raw) : []),
    ...(indexed && weights.indexer
      ? [
          segment(weights.indexer.weights, indexed.weights),
          ...compressorSegments(weights.indexer.compressor, indexed.raw),
        ]
      : []),
  ]);
  normRows(builder, rank, rank, { gain: weights.qNorm, group: queryRank, eps: config.rmsNormEps });
  normRows(builder, kv, kv, { gain: weights.kvNorm, group: headDim, eps: config.rmsNormEps });
  builder.linear('R', rank, queryRank, [
    segment(weights.qUp, q),
    ...(indexed && weights.indexer ? [segment(weights.indexer.q, indexed.q)] : []),
  ]);
  normRows(builder, q, q, { gain: -1, group: headDim, eps: config.rmsNormEps });
  turn(c, weights.rope, q, heads, headDim);
  turn(c, weights.rope, kv, 1, headDim);
  if (raw && weights.compressor) pool(c, type, weights, weights.compressor, offsets.compressor, raw);
  const select = indexed && weights.indexer && chooseRows(c, weights, weights.indexer, offsets, indexed);
  builder.op('windowAttention', {
    q: q.offset,
    kv: kv.offset,
    select: select ? select.offset : -1,
    out: o.offset,
    heads,
    dim: headDim,
    window,
    block: type === 'sliding_attention' ? 0 : config.rates[type],
    budgetBlocks: select ? select.width - 1 : 0,
    sink: weights.sink,
    scale: headDim ** -0.5,
    state: offsets.window,
    compressed: offsets.compressor?.rows ?? 0,
  });
  turn(c, weights.rope, o, heads, headDim, 1);
  const z = builder.buffer('attn.z', outputGroups * outputRank);
  builder.op('groupedLinear', {
    rows: 0,
    in: o.offset,
    out: z.offset,
    groups: outputGroups,
    groupIn: width / outputGroups,
    groupOut: outputRank,
    weight: weights.outDown.weight,
    rowStride: outputRank,
    rowOffset: 0,
  });
  builder.linear('R', z, outputGroups * outputRank, [segment(weights.outUp, y)]);
}

/** Rotary positions on the trailing channels of every head, in place. */
function turn(
  { builder, config }: DeepseekPlanContext,
  rope: number,
  x: PlanBuffer,
  heads: number,
  dim: number,
  inverse: 0 | 1 = 0,
): void {
  const { rotaryDim: rotary } = config.attention;
  builder.op('ropeTail', { rows: 0, in: x.offset, out: x.offset, heads, dim, rotary, rope, inverse });
}

function rawRows({ builder }: DeepseekPlanContext, name: string, weights: BoundCompressor): RawRows {
  return {
    values: builder.buffer(`${name}.values`, weights.values.outs),
    gates: builder.buffer(`${name}.gates`, weights.gates.outs),
  };
}

function compressorSegments(weights: BoundCompressor, raw: RawRows): LinearSegment[] {
  return [segment(weights.values, raw.values), segment(weights.gates, raw.gates)];
}

/** Windows that the call completes become rows of the pages; the raw rows stay in the ring. */
function pool(
  { builder, config }: DeepseekPlanContext,
  type: DeepseekLayerType,
  { rope }: BoundAttention,
  weights: BoundCompressor,
  offsets: CompressorOffsets | undefined,
  raw: RawRows,
): void {
  const overlap = type === 'compressed_sparse_attention' ? 1 : 0;
  builder.op('pool', {
    values: raw.values.offset,
    gates: raw.gates.offset,
    channels: raw.values.width / (1 + overlap),
    window: type === 'sliding_attention' ? 0 : config.rates[type],
    overlap,
    ape: weights.ape,
    gain: weights.norm,
    eps: config.rmsNormEps,
    rope,
    rotary: config.attention.rotaryDim,
    state: offsets?.ring ?? -1,
    pooled: offsets?.rows ?? -1,
  });
}

interface IndexBuffers {
  readonly q: PlanBuffer;
  readonly weights: PlanBuffer;
  readonly raw: RawRows;
}

function indexBuffers(c: DeepseekPlanContext, weights: BoundIndexer): IndexBuffers {
  return {
    q: c.builder.buffer('index.q', weights.q.outs),
    weights: c.builder.buffer('index.weights', weights.weights.outs),
    raw: rawRows(c, 'index', weights.compressor),
  };
}

/** Which compressed rows every query sees: row 1 + topRows of int32. */
function chooseRows(
  c: DeepseekPlanContext,
  weights: BoundAttention,
  indexer: BoundIndexer,
  offsets: LayerOffsets,
  buffers: IndexBuffers,
): PlanBuffer {
  const { heads, headDim: dim, topRows } = c.config.indexer!;
  const select = c.builder.buffer('index.select', 1 + topRows);
  turn(c, weights.rope, buffers.q, heads, dim);
  pool(c, 'compressed_sparse_attention', weights, indexer.compressor, offsets.indexer, buffers.raw);
  c.builder.op('indexSelect', {
    q: buffers.q.offset,
    out: select.offset,
    heads,
    dim,
    block: c.config.rates.compressed_sparse_attention,
    budgetBlocks: topRows,
    blocks: offsets.indexer?.rows ?? -1,
    weights: buffers.weights.offset,
    weightScale: heads ** -0.5,
    dotScale: dim ** -0.5,
  });
  return select;
}
