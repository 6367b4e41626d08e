/**
 * Describes the forward pass of a GLM model as a plan. No arithmetic happens here: the writers append the ops of one block
 * each, in the order of the published forward pass.
 *
 * Invariants: the ops depend on configuration, law and capacities alone, which together are the plan key; buffer names are
 * shared by all layers; R rows run through the trunk, M selected rows through the head.
 */
import { PlumblineError } from '../../errors.js';
import { PlanBuilder, type Plan, type PlanBuffer, type PlanOptions } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import { HEAD_INPUT, LOGITS, RESIDUAL, tapName } from '../plan-buffers.js';
import { gatedMlp, routedExperts, segment } from '../plan-experts.js';
import type { BoundGlm, BoundGlmLayer, BoundGlmMoe, BoundHyperConnection } from './bind.js';
import type { GlmConfig } from './config-types.js';
import { latentAttention, linearAttention } from './plan-mixers.js';
import type { GlmLayerOffsets, GlmStateLayout } from './state-layout.js';

export interface GlmPlanOptions {
  readonly config: GlmConfig;
  readonly bound: BoundGlm;
  readonly state: GlmStateLayout;
  readonly plan: PlanOptions;
  /** Copies of the residual before every layer, for verification. */
  readonly taps: boolean;
}

/** What the writers share. */
export interface GlmPlanContext {
  readonly builder: PlanBuilder;
  readonly config: GlmConfig;
}

export function buildGlmPlan(options: GlmPlanOptions, weights: WeightTable): Plan {
  return writePlan(options, weights).finish();
}

/** Words of workspace of such a plan, known before any weight is in memory. */
export function glmWorkspaceWords(options: GlmPlanOptions): number {
  return writePlan(options, new WeightTable()).workspaceWords;
}

function writePlan({ config, bound, state, plan, taps }: GlmPlanOptions, weights: WeightTable): PlanBuilder {
  const builder = new PlanBuilder(plan, weights);
  const c: GlmPlanContext = { builder, config };
  const { hiddenSize, vocabSize, rmsNormEps } = config;
  const { streams } = config.hyperConnections;
  const width = streams * hiddenSize;
  const residual = builder.buffer(RESIDUAL, width);
  builder.op('embed', { out: residual.offset, width: hiddenSize, copies: streams, weight: bound.embed });
  bound.layers.forEach((layer, index) => {
    if (taps) builder.op('tap', { in: residual.offset, out: builder.buffer(tapName(index), width).offset, width });
    writeLayer(c, layer, state.layers[index]!, residual);
  });
  const out = builder.buffer('out.residual', width, 'M');
  builder.op('gather', { in: residual.offset, out: out.offset, width });
  const mean = builder.buffer('out.mean', hiddenSize, 'M');
  const x = builder.buffer(HEAD_INPUT, hiddenSize, 'M');
  builder.op('mhcSum', {
    rows: 1,
    weights: -1,
    weightsWidth: 0,
    residual: out.offset,
    out: mean.offset,
    hidden: hiddenSize,
    streams,
  });
  norm(c, mean, x, bound.norm, rmsNormEps);
  const logits = builder.buffer(LOGITS, vocabSize, 'M');
  builder.linear('M', x, hiddenSize, [segment(bound.lmHead, logits)]);
  return builder;
}

function writeLayer(c: GlmPlanContext, layer: BoundGlmLayer, offsets: GlmLayerOffsets, residual: PlanBuffer): void {
  const { hiddenSize, swigluLimit } = c.config;
  const x = c.builder.buffer('x', hiddenSize);
  const y = c.builder.buffer('y', hiddenSize);
  readStreams(c, layer.attnHyper, residual, layer.inputNorm, x);
  if (layer.mixer.kind === 'kda' && offsets.kind === 'kda') linearAttention(c, layer.mixer, offsets, x, y);
  else if (layer.mixer.kind === 'dsa' && offsets.kind === 'dsa') latentAttention(c, layer.mixer, offsets, x, y);
  else throw new PlumblineError('plan_invalid', 'the plan builder needs a state layout that matches the layers');
  writeStreams(c, residual, y);
  readStreams(c, layer.mlpHyper, residual, layer.postNorm, x);
  if (layer.mlp.kind === 'dense') gatedMlp(c.builder, layer.mlp, 'mlp', x, y, swigluLimit);
  else mixtureOfExperts(c, layer.mlp, x, y);
  writeStreams(c, residual, y);
}

/** The weights of a hyper-connection, and the normed sum of the streams under its read weights. */
function readStreams(
  c: GlmPlanContext,
  weights: BoundHyperConnection,
  residual: PlanBuffer,
  gain: number,
  x: PlanBuffer,
): void {
  const { hiddenSize, rmsNormEps } = c.config;
  const { streams, eps, iterations } = c.config.hyperConnections;
  const normed = c.builder.buffer('hc.normed', residual.width);
  const mixing = mixingWeights(c);
  const u = c.builder.buffer('hc.sum', hiddenSize);
  norm(c, residual, normed, -1, rmsNormEps);
  c.builder.linear('R', normed, residual.width, [segment(weights.fn, mixing)]);
  c.builder.op('mhcWeights', {
    rows: 0,
    in: mixing.offset,
    out: mixing.offset,
    streams,
    iterations,
    scale: weights.scale,
    base: weights.base,
    eps,
  });
  c.builder.op('mhcSum', {
    rows: 0,
    weights: mixing.offset,
    weightsWidth: mixing.width,
    residual: residual.offset,
    out: u.offset,
    hidden: hiddenSize,
    streams,
  });
  norm(c, u, x, gain, rmsNormEps);
}

/** Writes a block's output to all streams, mixed by the weights of the read before it. */
function writeStreams(c: GlmPlanContext, residual: PlanBuffer, y: PlanBuffer): void {
  const mixing = mixingWeights(c);
  c.builder.op('mhcWrite', {
    residual: residual.offset,
    weights: mixing.offset,
    weightsWidth: mixing.width,
    y: y.offset,
    hidden: c.config.hiddenSize,
    streams: c.config.hyperConnections.streams,
  });
}

function mixingWeights(c: GlmPlanContext): PlanBuffer {
  const { streams } = c.config.hyperConnections;
  return c.builder.buffer('hc.weights', (2 + streams) * streams);
}

/** An RMS norm over whole rows; `gain` -1 for none. */
function norm(c: GlmPlanContext, input: PlanBuffer, out: PlanBuffer, gain: number, eps: number): void {
  const rows = input.rows === 'M' ? 1 : 0;
  const { width } = input;
  c.builder.op('norm', { rows, in: input.offset, out: out.offset, width, group: width, gain, eps });
}

function mixtureOfExperts(c: GlmPlanContext, weights: BoundGlmMoe, x: PlanBuffer, y: PlanBuffer): void {
  const { hiddenSize, swigluLimit: limit } = c.config;
  const {
    experts,
    expertsPerToken: topK,
    expertWidth: width,
    groups,
    groupsKept,
    scaling,
    normTopkProb,
  } = c.config.moe;
  const logits = c.builder.buffer('moe.logits', experts);
  const index = c.builder.buffer('moe.index', topK);
  const weight = c.builder.buffer('moe.weight', topK);
  const shared = c.builder.buffer('moe.shared', hiddenSize);
  c.builder.linear('R', x, hiddenSize, [segment(weights.router, logits)]);
  c.builder.op('scoreRouter', {
    logits: logits.offset,
    experts,
    topK,
    groups,
    groupsKept,
    score: 0,
    normalise: normTopkProb ? 1 : 0,
    scaling,
    bias: weights.bias,
    table: -1,
    outIndex: index.offset,
    outWeight: weight.offset,
  });
  const down = routedExperts(c.builder, weights, { hiddenSize, experts, topK, width, limit }, x, index);
  gatedMlp(c.builder, weights.shared, 'moe', x, shared, limit);
  c.builder.op('moeCombine', {
    down: down.offset,
    weights: weight.offset,
    shared: shared.offset,
    sharedGate: -1,
    hidden: hiddenSize,
    topK,
    out: y.offset,
    lowering: 0,
  });
}
