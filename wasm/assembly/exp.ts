/**
 * The written exponentials: the same operations in the same order as src/numerics/exp.ts, float32 in four lanes and
 * float64 one by one.
 *
 * Invariants: every operation is one IEEE operation in the named precision; NaN gives NaN; there is no fused
 * multiply-add in baseline WebAssembly, so nothing can contract.
 */

const F32_LOG2E: f32 = 1.4426950408889634;
const F32_ROUND: f32 = 12582912;
const F32_LN2_HIGH: f32 = 0.693359375;
const F32_LN2_LOW: f32 = -0.00021219444170128554; // 0.6931471805599453 - 0.693359375, subtracted in float64

/** 2^n as float32 for n in [-126, 127]. */
@inline
function powerOfTwo4(n: v128): v128 {
  return i32x4.shl(i32x4.add(n, i32x4.splat(127)), 23);
}

/** e^x in four lanes. */
export function expF32x4(x: v128): v128 {
  const clamped = f32x4.pmax(f32x4.pmin(x, f32x4.splat(89)), f32x4.splat(-104));
  const shifted = f32x4.add(f32x4.mul(clamped, f32x4.splat(F32_LOG2E)), f32x4.splat(F32_ROUND));
  const n = f32x4.sub(shifted, f32x4.splat(F32_ROUND));
  const high = f32x4.sub(clamped, f32x4.mul(n, f32x4.splat(F32_LN2_HIGH)));
  const r = f32x4.sub(high, f32x4.mul(n, f32x4.splat(F32_LN2_LOW)));
  let p = f32x4.splat(<f32>(1.0 / 5040.0));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(<f32>(1.0 / 720.0)));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(<f32>(1.0 / 120.0)));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(<f32>(1.0 / 24.0)));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(<f32>(1.0 / 6.0)));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(0.5));
  const y = f32x4.add(f32x4.add(f32x4.mul(p, f32x4.mul(r, r)), r), f32x4.splat(1));
  const whole = i32x4.trunc_sat_f32x4_s(n);
  const half = i32x4.shr_s(whole, 1);
  return f32x4.mul(f32x4.mul(y, powerOfTwo4(half)), powerOfTwo4(i32x4.sub(whole, half)));
}

/** 1 / (1 + e^-x) in four lanes, from e^|x|, mirrored for x >= 0. */
@inline
export function sigmoidF32x4(x: v128): v128 {
  const one = f32x4.splat(1);
  const y = f32x4.div(one, f32x4.add(one, expF32x4(f32x4.abs(x))));
  return v128.bitselect(y, f32x4.sub(one, y), f32x4.lt(x, f32x4.splat(0)));
}

const F64_LOG2E: f64 = 1.4426950408889634;
const F64_ROUND: f64 = 6755399441055744;
export const F64_LN2: f64 = 0.6931471805599453;
const F64_LN2_HIGH: f64 = 6.9314718036912381649e-1;
const F64_LN2_LOW: f64 = 1.90821492927058770002e-10;

/** 2^n for n in [-1022, 1023]. */
@inline
export function powerOfTwo(n: i32): f64 {
  return reinterpret<f64>((<u64>(n + 1023)) << 52);
}

function expReduced(r: f64, n: f64): f64 {
  let p: f64 = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const y = p * (r * r) + r + 1.0;
  const whole = <i32>n;
  const half = whole >> 1;
  return y * powerOfTwo(half) * powerOfTwo(whole - half);
}

export function expF64(x: f64): f64 {
  if (x != x) return x;
  const clamped: f64 = x > 710 ? 710 : x < -746 ? -746 : x;
  const n = clamped * F64_LOG2E + F64_ROUND - F64_ROUND;
  return expReduced(clamped - n * F64_LN2_HIGH - n * F64_LN2_LOW, n);
}

export function exp2F64(x: f64): f64 {
  if (x != x) return x;
  const clamped: f64 = x > 1025 ? 1025 : x < -1076 ? -1076 : x;
  const n = clamped + F64_ROUND - F64_ROUND;
  return expReduced((clamped - n) * F64_LN2, n);
}

/** Natural logarithm of x >= 1. */
function logF64(x: f64): f64 {
  if (!(x < Infinity)) return x;
  const bits = reinterpret<u64>(x);
  let n: f64 = <f64>(<i32>(bits >> 52) - 1023);
  let m = reinterpret<f64>((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    n = n + 1;
  }
  const s = (m - 1) / (m + 1);
  const z = s * s;
  let p: f64 = 1.0 / 23.0;
  for (let k: f64 = 21; k >= 3; k -= 2) p = p * z + 1.0 / k;
  return n * F64_LN2 + (2.0 * s + 2.0 * s * (z * p));
}

/** ln(1 + e^x); x itself above 20. */
export function softplusF64(x: f64): f64 {
  return x > 20 ? x : logF64(1 + expF64(x));
}
