/**
 * Feed-forward blocks as ops, as every family has them: the routed experts behind a choice, and the gated MLP.
 */
import type { PlanBuffer, PlanBuilder } from '../engine/plan/builder.js';
import { segment } from './plan-rows.js';
import type { BoundExperts, BoundSwiglu } from './weight-binder.js';

export interface ExpertSizes {
  readonly hiddenSize: number;
  readonly experts: number;
  readonly topK: number;
  readonly width: number;
  /** Clamp of gate and up; 0 for none. */
  readonly limit: number;
}

/** The experts that `index` [R, topK] names, each over its rows of x; returns [R, topK * hiddenSize]. */
export function routedExperts(
  builder: PlanBuilder,
  weights: BoundExperts,
  { hiddenSize, experts, topK, width, limit }: ExpertSizes,
  x: PlanBuffer,
  index: PlanBuffer,
): PlanBuffer {
  const list = builder.buffer('moe.list', topK);
  const offsets = builder.scratch('moe.offsets', experts + 1);
  const hidden = builder.buffer('moe.hidden', topK * width);
  const down = builder.buffer('moe.down', topK * hiddenSize);
  const grouped = { offsets: offsets.offset, list: list.offset, experts, topK };
  builder.op('moeGroup', {
    index: index.offset,
    experts,
    topK,
    outOffsets: offsets.offset,
    outList: list.offset,
  });
  builder.op('moeUp', {
    ...grouped,
    in: x.offset,
    hidden: hiddenSize,
    gate: weights.gate,
    up: weights.up,
    width,
    out: hidden.offset,
    limit,
  });
  builder.op('moeDown', {
    ...grouped,
    in: hidden.offset,
    width,
    down: weights.down,
    hidden: hiddenSize,
    out: down.offset,
  });
  return down;
}

/** y = down(silu(gate) * up), through buffers of this prefix; `limit` 0 for no clamp. */
export function gatedMlp(
  builder: PlanBuilder,
  weights: BoundSwiglu,
  prefix: string,
  x: PlanBuffer,
  y: PlanBuffer,
  limit: number,
): void {
  const width = weights.gate.outs;
  const gate = builder.buffer(`${prefix}.gate`, width);
  const up = builder.buffer(`${prefix}.up`, width);
  builder.linear('R', x, x.width, [segment(weights.gate, gate), segment(weights.up, up)]);
  builder.op('swiglu', { gate: gate.offset, up: up.offset, out: gate.offset, width, limit });
  builder.linear('R', gate, width, [segment(weights.down, y)]);
}
