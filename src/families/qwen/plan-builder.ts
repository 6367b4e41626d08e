/**
 * Describes the forward pass of a Qwen model as a plan. No arithmetic happens here: the writers append the ops of one
 * block each, in the order of the published forward pass.
 *
 * Invariants: the ops depend on configuration, law, capacities, lowering class and policy alone, which together are the
 * plan key; buffer names are shared by all layers; R rows run through the trunk, M selected rows through the head.
 */
import type { Plan, PlanBuffer, PlanBuilder } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import { HEAD_INPUT, LOGITS, RESIDUAL, tapName } from '../plan-buffers.js';
import type { BoundLayer } from './bind.js';

import { missing, PlanContext, type QwenPlanOptions } from './plan-context.js';
import { denseMlp, mixtureOfExperts } from './plan-feedforward.js';
import { linearAttention, sparseOrDenseAttention } from './plan-mixers.js';
import { addNgramEmbedding, readStreams, writeStreams } from './plan-residual.js';

export function buildQwenPlan(options: QwenPlanOptions, weights: WeightTable): Plan {
  return writePlan(options, weights).finish();
}

/** Words of workspace of such a plan, known before any weight is in memory. */
export function qwenWorkspaceWords(options: QwenPlanOptions): number {
  return writePlan(options, new WeightTable()).workspaceWords;
}

function writePlan(options: QwenPlanOptions, weights: WeightTable): PlanBuilder {
  const c = new PlanContext(options, weights);
  const { builder, config, bound } = c;
  const streams = config.family === 'qwen4_exp' ? config.hyperConnections.streams : 1;
  const width = streams * config.hiddenSize;
  const residual = builder.buffer(RESIDUAL, width);
  builder.op('embed', { out: residual.offset, width: config.hiddenSize, copies: streams, weight: bound.embed });
  bound.layers.forEach((layer, index) => {
    if (c.taps) {
      const tap = builder.buffer(tapName(index), width);
      builder.op('tap', { in: residual.offset, out: tap.offset, width });
    }
    writeLayer(c, layer, index, residual);
  });
  const out = builder.buffer('out.residual', width, 'M');
  builder.op('gather', { in: residual.offset, out: out.offset, width });
  const x = builder.buffer(HEAD_INPUT, config.hiddenSize, 'M');
  if (bound.last.kind === 'read') readStreams(c, bound.last.read, out, x);
  else c.norm(out, x, bound.last.norm, config.hiddenSize);
  const logits = builder.buffer(LOGITS, config.vocabSize, 'M');
  builder.linear('M', x, config.hiddenSize, [{ weight: bound.lmHead.weight, out: logits, outs: config.vocabSize }]);
  return builder;
}

function writeLayer(c: PlanContext, layer: BoundLayer, index: number, residual: PlanBuffer): void {
  const { hiddenSize } = c.config;
  const x = c.builder.buffer('x', hiddenSize);
  const y = c.builder.buffer('y', hiddenSize);
  if (layer.ple) addNgramEmbedding(c, layer.ple, index, residual);
  const { body } = layer;
  if (body.kind === 'qwen4_exp') {
    readStreams(c, body.attn, residual, x);
    writeMixer(c, layer, index, x, y);
    writeStreams(c, residual, y);
    readStreams(c, body.mlp, residual, x);
    mixtureOfExperts(c, body.moe, x, y);
    writeStreams(c, residual, y);
  } else {
    c.norm(residual, x, body.inputNorm, hiddenSize);
    writeMixer(c, layer, index, x, y);
    addToResidual(c, residual, y);
    c.norm(residual, x, body.postNorm, hiddenSize);
    denseMlp(c, body.mlp, x, y);
    addToResidual(c, residual, y);
  }
}

function writeMixer(c: PlanContext, layer: BoundLayer, index: number, x: PlanBuffer, y: PlanBuffer): void {
  const offsets = c.state.layers[index]?.mixer;
  if (layer.mixer.kind === 'linear_attention' && offsets?.kind === 'linear_attention') {
    linearAttention(c, layer.mixer, offsets, index, x, y);
  } else if (layer.mixer.kind === 'attention' && offsets?.kind === 'attention') {
    sparseOrDenseAttention(c, layer.mixer, offsets, x, y);
  } else {
    throw missing(`a state layout that matches layer ${index}`);
  }
}

function addToResidual(c: PlanContext, residual: PlanBuffer, y: PlanBuffer): void {
  c.builder.op('add', { rows: 0, a: residual.offset, b: y.offset, out: residual.offset, width: residual.width });
}
