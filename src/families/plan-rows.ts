/**
 * Small pieces that every family's plan writers use: a norm, and a linear map into a buffer of its own.
 */
import type { LinearSegment, PlanBuffer, PlanBuilder } from '../engine/plan/builder.js';
import type { BoundLinear } from './weight-binder.js';

/** Appends an RMS norm over groups of `group` elements; `gain` -1: the scaling alone. */
export function normRows(
  builder: PlanBuilder,
  input: PlanBuffer,
  out: PlanBuffer,
  norm: { readonly gain: number; readonly group: number; readonly eps: number },
): void {
  const rows = input.rows === 'M' ? 1 : 0;
  builder.op('norm', { rows, in: input.offset, out: out.offset, width: input.width, ...norm });
}

/** A linear map whose output fills a buffer, or stands in it from a column on. */
export function segment(linear: BoundLinear, out: PlanBuffer, outColumn = 0): LinearSegment {
  return { weight: linear.weight, bias: linear.bias, out, outColumn, outs: linear.outs };
}
