/**
 * The feed-forward blocks as ops: the mixture of experts with its shared expert, and the dense SwiGLU.
 */
import type { PlanBuffer } from '../../engine/plan/builder.js';
import { gatedMlp, routedExperts } from '../plan-experts.js';
import { segment } from '../plan-rows.js';
import type { BoundSwiglu } from '../weight-binder.js';
import type { BoundMoe } from './bind.js';
import type { PlanContext } from './plan-context.js';

export function mixtureOfExperts(c: PlanContext, weights: BoundMoe, x: PlanBuffer, y: PlanBuffer): void {
  const config = c.qwen4();
  const { hiddenSize } = config;
  const { experts, expertsPerToken: topK, expertWidth, sharedExpertWidth, normTopkProb } = config.moe;
  const logits = c.builder.buffer('moe.logits', experts);
  const sharedGate = c.builder.buffer('moe.sharedGate', 1);
  const gate = c.builder.buffer('moe.gate', sharedExpertWidth);
  const up = c.builder.buffer('moe.up', sharedExpertWidth);
  const shared = c.builder.buffer('moe.shared', hiddenSize);
  const index = c.builder.buffer('moe.index', topK);
  const weight = c.builder.buffer('moe.weight', topK);
  c.builder.linear('R', x, hiddenSize, [
    segment(weights.router, logits),
    segment(weights.sharedGate, sharedGate),
    segment(weights.shared.gate, gate),
    segment(weights.shared.up, up),
  ]);
  c.builder.op('router', {
    logits: logits.offset,
    experts,
    topK,
    normalise: normTopkProb ? 1 : 0,
    outIndex: index.offset,
    outWeight: weight.offset,
  });
  const sizes = { hiddenSize, experts, topK, width: expertWidth, limit: 0 };
  const down = routedExperts(c.builder, weights, sizes, x, index);
  c.builder.op('swiglu', { gate: gate.offset, up: up.offset, out: gate.offset, width: sharedExpertWidth, limit: 0 });
  c.builder.linear('R', gate, sharedExpertWidth, [segment(weights.shared.down, shared)]);
  c.builder.op('moeCombine', {
    down: down.offset,
    weights: weight.offset,
    shared: shared.offset,
    sharedGate: sharedGate.offset,
    hidden: hiddenSize,
    topK,
    out: y.offset,
    lowering: c.lowering('shared-expert'),
  });
}

export function denseMlp(c: PlanContext, weights: BoundSwiglu, x: PlanBuffer, y: PlanBuffer): void {
  gatedMlp(c.builder, weights, 'mlp', x, y, 0);
}
