/**
 * Manifold hyper-connections as ops: the residual of a token is H parallel streams of D elements, stream after stream.
 * Before a block they are summed with weights of the row's own; behind it the block's output goes to every stream and the
 * streams are mixed by a nearly doubly stochastic matrix.
 *
 * Invariants: the weights of a read are made from the residual as the read sees it and used by the write behind the block;
 * one read is answered by one write before the next read of the trunk.
 */
import type { PlanBuffer, PlanBuilder } from '../engine/plan/builder.js';
import { normRows } from './plan-rows.js';
import type { BoundLinear } from './weight-binder.js';

export interface ManifoldConfig {
  /** [H], at most 8 */
  readonly streams: number;
  /** Sinkhorn passes over the mixing matrix. */
  readonly iterations: number;
  /** Added to read weights and to sums of the mixing matrix. */
  readonly eps: number;
}

export interface BoundManifold {
  /** [(2 + H) * H, H * D]; of a read without a write [H, H * D] */
  readonly fn: BoundLinear;
  /** float32 [3] or [1] */
  readonly scale: number;
  /** float32, as many as `fn` has rows */
  readonly base: number;
}

/** What the plan of a model with such streams is written with. */
export interface ManifoldWriter {
  readonly builder: PlanBuilder;
  readonly hyper: ManifoldConfig;
  /** [D] */
  readonly hiddenSize: number;
  readonly rmsNormEps: number;
}

const WEIGHTS = 'hc.weights';

/** x = norm of the weighted sum of the streams; the weights stay for `writeStreams`. */
export function readStreams(
  w: ManifoldWriter,
  bound: BoundManifold,
  residual: PlanBuffer,
  x: PlanBuffer,
  gain: number,
): void {
  sumStreams(w, bound, residual, x, w.hyper.iterations, 'hc');
  normRows(w.builder, x, x, { gain, group: w.hiddenSize, eps: w.rmsNormEps });
}

/** The residual behind a block with output y. */
export function writeStreams(
  { builder, hyper, hiddenSize }: ManifoldWriter,
  residual: PlanBuffer,
  y: PlanBuffer,
): void {
  const { streams } = hyper;
  const weightsWidth = (2 + streams) * streams;
  const weights = builder.buffer(WEIGHTS, weightsWidth);
  builder.op('mhcWrite', {
    residual: residual.offset,
    weights: weights.offset,
    weightsWidth,
    y: y.offset,
    hidden: hiddenSize,
    streams,
  });
}

/** out = the sum of the streams by read weights alone, in the buffers' own rows. */
export function sumStreamsOnce(w: ManifoldWriter, bound: BoundManifold, residual: PlanBuffer, out: PlanBuffer): void {
  sumStreams(w, bound, residual, out, 0, 'out.hc');
}

function sumStreams(
  { builder, hyper, hiddenSize, rmsNormEps }: ManifoldWriter,
  bound: BoundManifold,
  residual: PlanBuffer,
  out: PlanBuffer,
  iterations: number,
  prefix: string,
): void {
  const { streams, eps } = hyper;
  const rows = residual.rows === 'M' ? 1 : 0;
  const normed = builder.buffer(`${prefix}.normed`, residual.width, residual.rows);
  const weights = builder.buffer(`${prefix}.weights`, bound.fn.outs, residual.rows);
  normRows(builder, residual, normed, { gain: -1, group: residual.width, eps: rmsNormEps });
  builder.linear(residual.rows, normed, residual.width, [
    { weight: bound.fn.weight, out: weights, outs: bound.fn.outs },
  ]);
  builder.op('mhcWeights', {
    rows,
    in: weights.offset,
    out: weights.offset,
    streams,
    iterations,
    scale: bound.scale,
    base: bound.base,
    eps,
  });
  builder.op('mhcSum', {
    rows,
    weights: weights.offset,
    weightsWidth: bound.fn.outs,
    residual: residual.offset,
    out: out.offset,
    hidden: hiddenSize,
    streams,
  });
}
