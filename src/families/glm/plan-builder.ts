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
import { gatedMlp } from '../plan-experts.js';
import { readStreams, writeStreams, type ManifoldWriter } from '../plan-manifold.js';
import { normRows, segment } from '../plan-rows.js';
import { scoredExperts, type ScoredExpertsConfig } from '../plan-scored-experts.js';
import type { BoundGlm, BoundGlmLayer } from './bind.js';
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
export interface GlmPlanContext extends ManifoldWriter {
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
  const { hiddenSize, vocabSize, rmsNormEps, hyperConnections } = config;
  const c: GlmPlanContext = { builder, config, hyper: hyperConnections, hiddenSize, rmsNormEps };
  const { streams } = hyperConnections;
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
  normRows(builder, mean, x, { gain: bound.norm, group: hiddenSize, eps: rmsNormEps });
  const logits = builder.buffer(LOGITS, vocabSize, 'M');
  builder.linear('M', x, hiddenSize, [segment(bound.lmHead, logits)]);
  return builder;
}

function writeLayer(c: GlmPlanContext, layer: BoundGlmLayer, offsets: GlmLayerOffsets, residual: PlanBuffer): void {
  const { hiddenSize, swigluLimit } = c.config;
  const x = c.builder.buffer('x', hiddenSize);
  const y = c.builder.buffer('y', hiddenSize);
  readStreams(c, layer.attnHyper, residual, x, layer.inputNorm);
  if (layer.mixer.kind === 'kda' && offsets.kind === 'kda') linearAttention(c, layer.mixer, offsets, x, y);
  else if (layer.mixer.kind === 'dsa' && offsets.kind === 'dsa') latentAttention(c, layer.mixer, offsets, x, y);
  else throw new PlumblineError('plan_invalid', 'the plan builder needs a state layout that matches the layers');
  writeStreams(c, residual, y);
  readStreams(c, layer.mlpHyper, residual, x, layer.postNorm);
  if (layer.mlp.kind === 'dense') gatedMlp(c.builder, layer.mlp, 'mlp', x, y, swigluLimit);
  else scoredExperts(c.builder, expertsConfig(c.config), layer.mlp.moe, x, y);
  writeStreams(c, residual, y);
}

function expertsConfig({ hiddenSize, moe, swigluLimit }: GlmConfig): ScoredExpertsConfig {
  return { ...moe, hiddenSize, scoring: 'sigmoid', normalise: moe.normTopkProb, swigluLimit };
}
