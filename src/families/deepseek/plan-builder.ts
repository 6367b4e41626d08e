/**
 * Describes the forward pass of a DeepSeek V4 model as a plan. No arithmetic happens here: the writers append the ops of one
 * block each, in the order of the published forward pass.
 *
 * Invariants: the ops depend on configuration, law and capacities alone; buffer names are shared by all layers; R rows run
 * through the trunk, M selected rows through the head.
 */
import { PlanBuilder, type Plan } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import { HEAD_INPUT, LOGITS, RESIDUAL, tapName } from '../plan-buffers.js';
import { readStreams, sumStreamsOnce, writeStreams } from '../plan-manifold.js';
import { normRows, segment } from '../plan-rows.js';
import { scoredExperts } from '../plan-scored-experts.js';
import { attention } from './plan-attention.js';
import type { DeepseekPlanContext, DeepseekPlanOptions } from './plan-context.js';

export function buildDeepseekPlan(options: DeepseekPlanOptions, weights: WeightTable): Plan {
  return writePlan(options, weights).finish();
}

/** Words of workspace of such a plan, known before any weight is in memory. */
export function deepseekWorkspaceWords(options: DeepseekPlanOptions): number {
  return writePlan(options, new WeightTable()).workspaceWords;
}

function writePlan({ config, bound, state, plan, taps }: DeepseekPlanOptions, weights: WeightTable): PlanBuilder {
  const builder = new PlanBuilder(plan, weights);
  const { hiddenSize, rmsNormEps, hyper, moe } = config;
  const c: DeepseekPlanContext = { builder, config, hyper, hiddenSize, rmsNormEps };
  const experts = { hiddenSize, ...moe, groups: 1, groupsKept: 1, normalise: true };
  const width = hyper.streams * hiddenSize;
  const residual = builder.buffer(RESIDUAL, width);
  const x = builder.buffer('x', hiddenSize);
  const y = builder.buffer('y', hiddenSize);
  builder.op('embed', { out: residual.offset, width: hiddenSize, copies: hyper.streams, weight: bound.embed });
  bound.layers.forEach((layer, index) => {
    if (taps) {
      const tap = builder.buffer(tapName(index), width);
      builder.op('tap', { in: residual.offset, out: tap.offset, width });
    }
    readStreams(c, layer.attnHyper, residual, x, layer.attnNorm);
    attention(c, config.layerTypes[index]!, layer.attn, state.layers[index]!, x, y);
    writeStreams(c, residual, y);
    readStreams(c, layer.ffnHyper, residual, x, layer.ffnNorm);
    scoredExperts(builder, experts, layer.ffn, x, y);
    writeStreams(c, residual, y);
  });
  const last = builder.buffer('out.residual', width, 'M');
  builder.op('gather', { in: residual.offset, out: last.offset, width });
  const head = builder.buffer(HEAD_INPUT, hiddenSize, 'M');
  sumStreamsOnce(c, bound.headHyper, last, head);
  normRows(builder, head, head, { gain: bound.norm, group: hiddenSize, eps: rmsNormEps });
  const logits = builder.buffer(LOGITS, config.vocabSize, 'M');
  builder.linear('M', head, hiddenSize, [segment(bound.head, logits)]);
  return builder;
}
