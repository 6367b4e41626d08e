/**
 * softmax and logsumexp of MLX's CPU back end (vector width 1), with every rounding of the named types; and the classes of
 * both back ends, which say what an invalid row turns into.
 */
import { cpuExpF32, logF32 } from './cpu-exp.js';
import { FLOAT_TYPES, type FloatType } from './float-type.js';
import { maxPropagatingNaN, type MlxBackend } from './order.js';

const fround = Math.fround;

/** Exponentials of x - max in the accumulation type, and their sequential sum. */
function exponentials(x: ArrayLike<number>, accumulation: FloatType): { readonly e: number[]; readonly total: number } {
  const max = maxPropagatingNaN(x);
  const e = Array.from(x, (value) => accumulation.round(cpuExpF32(accumulation.round(fround(value - max)))));
  const total = e.reduce((running, value) => accumulation.round(fround(running + value)), 0);
  return { e, total };
}

/**
 * softmax over the last axis.
 * @param precise accumulate in float32 although the array is narrower.
 */
export function softmax(x: ArrayLike<number>, type: FloatType, precise: boolean): number[] {
  const accumulation = precise ? FLOAT_TYPES.f32 : type;
  const { e, total } = exponentials(x, accumulation);
  const inverse = accumulation.round(fround(1 / total));
  return e.map((value) => type.round(fround(value * inverse)));
}

/** log sum exp over the last axis: always accumulated in float32. An infinite maximum is the result. */
export function logsumexp(x: ArrayLike<number>, type: FloatType): number {
  const max = maxPropagatingNaN(x);
  if (max === Infinity || max === -Infinity) return max;
  return type.round(fround(logF32(exponentials(x, FLOAT_TYPES.f32).total) + max));
}

/** What kind of number a result is. */
export type FloatClass = 'finite' | '+inf' | '-inf' | 'nan';

function classOf(x: number): FloatClass {
  if (Number.isNaN(x)) return 'nan';
  if (Number.isFinite(x)) return 'finite';
  return x > 0 ? '+inf' : '-inf';
}

/** Class of the maximum: NaN propagates on both back ends. */
export function maxClass(x: ArrayLike<number>): FloatClass {
  return classOf(maxPropagatingNaN(x));
}

/** Class of logsumexp: on Metal NaN never becomes the maximum, so a +inf beside it wins; on the CPU NaN wins. */
export function logsumexpClass(x: ArrayLike<number>, backend: MlxBackend): FloatClass {
  const values = Array.from(x);
  if (backend === 'metal' && values.includes(Infinity)) return '+inf';
  return maxClass(values);
}

/** Class of a softmax row: any NaN, any +inf, or nothing finite turns the whole row into NaN (both back ends). */
export function softmaxClass(x: ArrayLike<number>): FloatClass {
  return maxClass(x) === 'finite' ? 'finite' : 'nan';
}
