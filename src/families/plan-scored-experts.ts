/**
 * A mixture of experts whose router scores every expert by itself, with a shared expert that is added as it is.
 *
 * Invariants: the choice is by score plus bias, or by a table of the token's id; the weights are of the scores alone.
 */
import type { PlanBuffer, PlanBuilder } from '../engine/plan/builder.js';
import { routedExperts } from './plan-experts.js';
import { segment } from './plan-rows.js';
import type { BoundExperts, BoundLinear, BoundSwiglu } from './weight-binder.js';

export interface ScoredExpertsConfig {
  readonly hiddenSize: number;
  readonly experts: number;
  readonly expertsPerToken: number;
  /** Width of a routed expert. */
  readonly expertWidth: number;
  /** Blocks of experts, and how many of them stay in the choice; 1 and 1: all. */
  readonly groups: number;
  readonly groupsKept: number;
  readonly scoring: 'sigmoid' | 'sqrtsoftplus';
  readonly normalise: boolean;
  readonly scaling: number;
  /** Clamp of gate (above) and up (both sides); 0: none. */
  readonly swigluLimit: number;
}

export interface BoundScoredExperts extends BoundExperts {
  readonly router: BoundLinear;
  /** float32 [experts], or -1. */
  readonly bias: number;
  /** int32 [vocabulary, expertsPerToken], or -1. */
  readonly table: number;
  readonly shared: BoundSwiglu;
}

export function scoredExperts(
  builder: PlanBuilder,
  config: ScoredExpertsConfig,
  weights: BoundScoredExperts,
  x: PlanBuffer,
  y: PlanBuffer,
): void {
  const { hiddenSize: hidden, experts, expertsPerToken: topK, expertWidth, swigluLimit: limit } = config;
  const sharedWidth = weights.shared.gate.outs;
  const logits = builder.buffer('moe.logits', experts);
  const gate = builder.buffer('moe.gate', sharedWidth);
  const up = builder.buffer('moe.up', sharedWidth);
  const shared = builder.buffer('moe.shared', hidden);
  const index = builder.buffer('moe.index', topK);
  const weight = builder.buffer('moe.weight', topK);
  builder.linear('R', x, hidden, [
    segment(weights.router, logits),
    segment(weights.shared.gate, gate),
    segment(weights.shared.up, up),
  ]);
  builder.op('scoreRouter', {
    logits: logits.offset,
    experts,
    topK,
    groups: config.groups,
    groupsKept: config.groupsKept,
    score: config.scoring === 'sigmoid' ? 0 : 1,
    normalise: config.normalise ? 1 : 0,
    scaling: config.scaling,
    bias: weights.bias,
    table: weights.table,
    outIndex: index.offset,
    outWeight: weight.offset,
  });
  const sizes = { hiddenSize: hidden, experts, topK, width: expertWidth, limit };
  const down = routedExperts(builder, weights, sizes, x, index);
  builder.op('swiglu', { gate: gate.offset, up: up.offset, out: gate.offset, width: sharedWidth, limit });
  builder.linear('R', gate, sharedWidth, [segment(weights.shared.down, shared)]);
  builder.op('moeCombine', {
    down: down.offset,
    weights: weight.offset,
    shared: shared.offset,
    sharedGate: -1,
    hidden,
    topK,
    out: y.offset,
    lowering: 0,
  });
}
