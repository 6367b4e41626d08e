/**
 * The written exponentials of plumbline: one polynomial each, in multiplications and additions only (no fused
 * multiply-add), so that the C, AssemblyScript and TypeScript forms give the same bits on every machine.
 *
 * Invariants: every operation below is one IEEE operation in the named precision, in the written order; the C file is
 * compiled without contraction. `expF32(0)` is exactly 1; NaN gives NaN; overflow gives +inf; subnormal results are kept.
 * Coefficients are the Taylor coefficients 1/k!, which on |r| <= ln(2)/2 err by less than the last bit of the type.
 */

const fround = Math.fround;

const F32_LOG2E = fround(1.4426950408889634);
const F32_ROUND = 12582912; // 1.5 * 2^23: adding and subtracting it rounds to an integer, ties to even
const F32_LN2_HIGH = 0.693359375; // 355/512: its product with an exponent is exact
const F32_LN2_LOW = fround(0.6931471805599453 - 0.693359375);
const F32_COEFFICIENTS = [5040, 720, 120, 24, 6, 2].map((factorial) => fround(1 / factorial));

const words = new Uint32Array(2);
const f64 = new Float64Array(words.buffer);

/** 2^n for integer n in [-1022, 1023], exact. */
function powerOfTwo(n: number): number {
  words[0] = 0;
  words[1] = (n + 1023) << 20;
  return f64[0]!;
}

/** e^x in float32; x is taken as float32. Error below 1.5 units in the last place. */
export function expF32(x: number): number {
  if (x !== x) return Number.NaN;
  const clamped = x > 89 ? 89 : x < -104 ? -104 : fround(x); // beyond these the result is +inf or 0 in float32
  const n = fround(fround(fround(clamped * F32_LOG2E) + F32_ROUND) - F32_ROUND);
  const r = fround(fround(clamped - fround(n * F32_LN2_HIGH)) - fround(n * F32_LN2_LOW));
  let p = F32_COEFFICIENTS[0]!;
  for (let i = 1; i < F32_COEFFICIENTS.length; i++) p = fround(fround(p * r) + F32_COEFFICIENTS[i]!);
  const y = fround(fround(fround(p * fround(r * r)) + r) + 1);
  const half = n >> 1; // two steps, so that neither factor leaves the normal range
  return fround(fround(y * powerOfTwo(half)) * powerOfTwo(n - half));
}

/** 1 / (1 + e^-x) in float32, in the form that never overflows: from e^|x|, mirrored for x >= 0. */
export function sigmoidF32(x: number): number {
  const y = fround(1 / fround(1 + expF32(Math.abs(x))));
  return x < 0 ? y : fround(1 - y);
}

/** x times its sigmoid, float32: one product of two float32 values. */
export function siluF32(x: number): number {
  return fround(fround(x) * sigmoidF32(x));
}

const F64_LOG2E = 1.4426950408889634;
const F64_ROUND = 6755399441055744; // 1.5 * 2^52
const F64_LN2 = 0.6931471805599453;
const F64_LN2_HIGH = 6.9314718036912381649e-1; // upper 32 bits of ln 2 (the split that fdlibm uses)
const F64_LN2_LOW = 1.90821492927058770002e-10;
const F64_COEFFICIENTS = [6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2].map(
  (factorial) => 1 / factorial,
);

function expReduced(r: number, n: number): number {
  let p = F64_COEFFICIENTS[0]!;
  for (let i = 1; i < F64_COEFFICIENTS.length; i++) p = p * r + F64_COEFFICIENTS[i]!;
  const y = p * (r * r) + r + 1;
  const half = n >> 1;
  return y * powerOfTwo(half) * powerOfTwo(n - half);
}

/** e^x in float64 (about 1 unit in the last place): rounds correctly to float32 wherever it matters. */
export function expF64(x: number): number {
  if (x !== x) return Number.NaN;
  const clamped = x > 710 ? 710 : x < -746 ? -746 : x;
  const n = clamped * F64_LOG2E + F64_ROUND - F64_ROUND;
  return expReduced(clamped - n * F64_LN2_HIGH - n * F64_LN2_LOW, n);
}

/** 2^x in float64, the same polynomial on the fraction. */
export function exp2F64(x: number): number {
  if (x !== x) return Number.NaN;
  const clamped = x > 1025 ? 1025 : x < -1076 ? -1076 : x;
  const n = clamped + F64_ROUND - F64_ROUND;
  return expReduced((clamped - n) * F64_LN2, n);
}

const F64_SQRT2 = 1.4142135623730951;

/** Natural logarithm of x >= 1 in float64: 2 atanh((m-1)/(m+1)) by its series up to the 23rd power, plus the exponent. */
export function logF64(x: number): number {
  if (!(x < Number.POSITIVE_INFINITY)) return x;
  f64[0] = x;
  let n = (words[1]! >>> 20) - 1023;
  words[1] = (words[1]! & 0xfffff) | 0x3ff00000;
  let m = f64[0];
  if (m > F64_SQRT2) {
    m = m * 0.5;
    n = n + 1;
  }
  const s = (m - 1) / (m + 1);
  const z = s * s;
  let p = 1 / 23;
  for (let k = 21; k >= 3; k -= 2) p = p * z + 1 / k;
  return n * F64_LN2 + (2 * s + 2 * s * (z * p));
}

/** ln(1 + e^x) in float64; x itself above 20. */
export function softplusF64(x: number): number {
  return x > 20 ? x : logF64(1 + expF64(x));
}
