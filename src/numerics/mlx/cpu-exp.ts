/**
 * exp and log of MLX's CPU back end (x86-64, vector width 1). Not an oracle for Metal.
 *
 * exp is 2^(i + f) with i = floor(x * 1.442695 + 0.5): a fixed polynomial of degree 6 in f with fused multiply-adds, in float32,
 * times 2^i by its exponent bits; above 88 it is +inf, below -88 it is 0. log is the C library's logf, which is within an
 * ulp of the correctly rounded value given here. Narrow types compute in float32 and round once.
 */
import { fmaF32 } from '../lanes.js';
import { f32FromBits } from '../rounding.js';

const fround = Math.fround;
const LOG2E = fround(1.442695);
const COEFFICIENTS = [
  1.5353361883195e-4, 1.339887440266574e-3, 9.61843735767464e-3, 5.550332471162809e-2, 2.402264791363012e-1,
  6.931472028550421e-1, 1,
].map(fround);

/** e^x in float32 by the CPU's polynomial. */
export function cpuExpF32(x: number): number {
  if (Number.isNaN(x)) return x;
  if (x > 88) return Infinity;
  if (x < -88) return 0;
  const scaled = fround(x * LOG2E);
  const whole = fround(Math.floor(scaled + 0.5));
  const fraction = fround(scaled - whole);
  let p = COEFFICIENTS[0]!;
  for (let i = 1; i < COEFFICIENTS.length; i++) p = fmaF32(p, fraction, COEFFICIENTS[i]!);
  return fround(f32FromBits((whole + 127) << 23) * p);
}

/** ln x in float32, rounded once from float64. */
export function logF32(x: number): number {
  return fround(Math.log(x));
}
