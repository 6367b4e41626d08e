/**
 * The residual streams of `qwen4_exp` as ops: reading them through their gate, writing a block's output back, and the
 * hashed n-gram embedding that one early layer adds.
 */
import type { PlanBuffer } from '../../engine/plan/builder.js';
import type { BoundPle, BoundResidualRead } from './bind.js';
import { pleInput, stashName } from './plan-buffers.js';
import { missing, type PlanContext } from './plan-context.js';

/** Reads the streams through their gate: x, and (but for the last read) the write weights `inject`. */
export function readStreams(c: PlanContext, weights: BoundResidualRead, residual: PlanBuffer, x: PlanBuffer): void {
  const config = c.qwen4();
  const { streams, rank } = config.hyperConnections;
  const width = streams * config.hiddenSize;
  const prefix = residual.rows === 'M' ? 'out.' : '';
  const buffer = (name: string, columns: number): PlanBuffer => c.builder.buffer(prefix + name, columns, residual.rows);
  const normed = buffer('normed', width);
  const down = buffer('hc.down', rank);
  const mix = buffer('hc.mix', width);
  const inject = weights.inject && c.builder.buffer('hc.inject', streams);
  c.norm(residual, normed, weights.norm, config.hiddenSize);
  c.builder.linear(residual.rows, normed, width, [
    { weight: weights.down.weight, out: down, outs: rank },
    ...(weights.inject && inject ? [{ weight: weights.inject.weight, out: inject, outs: streams }] : []),
  ]);
  const rows = residual.rows === 'M' ? 1 : 0;
  c.builder.op('hcAct', {
    rows,
    down: down.offset,
    rank,
    inject: inject ? inject.offset : -1,
    streams,
    lowering: c.lowering('injection'),
  });
  c.builder.linear(residual.rows, down, rank, [{ weight: weights.up.weight, out: mix, outs: width }]);
  c.builder.op('hcMix', {
    rows,
    mix: mix.offset,
    normed: normed.offset,
    out: x.offset,
    hidden: config.hiddenSize,
    streams,
  });
}

export function writeStreams(c: PlanContext, residual: PlanBuffer, y: PlanBuffer): void {
  const config = c.qwen4();
  const { streams } = config.hyperConnections;
  const inject = c.builder.buffer('hc.inject', streams);
  c.builder.op('hcWrite', {
    residual: residual.offset,
    inject: inject.offset,
    y: y.offset,
    hidden: config.hiddenSize,
    streams,
  });
}

export function addNgramEmbedding(c: PlanContext, weights: BoundPle, layer: number, residual: PlanBuffer): void {
  const config = c.qwen4();
  const { ple } = config;
  if (!ple) throw missing('a PLE configuration');
  const { hiddenSize } = config;
  const { streams } = config.hyperConnections;
  const width = streams * hiddenSize;
  const embedding = c.builder.buffer(pleInput(layer), ple.embedDim);
  const key = c.builder.buffer('ple.key', width);
  const value = c.builder.buffer('ple.value', hiddenSize);
  const query = c.builder.buffer('ple.query', width);
  const u = c.builder.buffer('ple.u', width);
  c.builder.linear('R', embedding, ple.embedDim, [
    { weight: weights.key.weight, out: key, outs: width },
    { weight: weights.value.weight, out: value, outs: hiddenSize },
  ]);
  c.norm(key, key, weights.vectors.normKey, hiddenSize);
  c.norm(residual, query, weights.vectors.normQuery, hiddenSize);
  c.builder.op('pleGate', {
    key: key.offset,
    query: query.offset,
    value: value.offset,
    out: u.offset,
    hidden: hiddenSize,
    streams,
    rootHidden: Math.sqrt(hiddenSize),
    lowering: c.lowering('ple-value'),
  });
  const normed = ngramConvolutionInput(c, layer);
  c.norm(u, normed, weights.vectors.normConv, hiddenSize);
  const conv = ngramConvolution(c, weights, layer);
  c.builder.op('pleAdd', { residual: residual.offset, u: u.offset, conv: conv.offset, width });
}

/** The dilated convolution over the rows of `ngramConvolutionInput`; returns its output. */
export function ngramConvolution(c: PlanContext, weights: BoundPle, layer: number): PlanBuffer {
  const { ple } = c.qwen4();
  if (!ple) throw missing('a PLE configuration');
  const normed = ngramConvolutionInput(c, layer);
  const conv = c.builder.buffer('ple.conv', normed.width);
  c.builder.op('conv', {
    in: normed.offset,
    out: conv.offset,
    channels: normed.width,
    kernel: ple.convKernel,
    dilation: ple.ngramSize,
    weight: weights.vectors.conv,
    state: c.state.layers[layer]!.pleTail,
  });
  return conv;
}

/** Shared by all layers, or each layer's own where the rows must outlive the plan. */
function ngramConvolutionInput(c: PlanContext, layer: number): PlanBuffer {
  const { hiddenSize, hyperConnections } = c.qwen4();
  return c.builder.buffer(c.stash ? stashName(layer, 'ple') : 'ple.normed', hyperConnections.streams * hiddenSize);
}
