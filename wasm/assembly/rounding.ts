/**
 * Rounding between float32, bfloat16 and half, four lanes at a time, and A: the rounding to the plan's activation type.
 *
 * Invariants: the bits of src/numerics/rounding.ts; to nearest, ties to even; NaN stays NaN (quiet, sign kept); widening is
 * exact, subnormals included.
 */
import { isBf16 } from './context';

/** float32 values rounded to bfloat16, as float32. */
@inline
export function roundBf16x4(x: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 16), i32x4.splat(1));
  const rounded = i32x4.add(i32x4.add(x, i32x4.splat(0x7fff)), odd);
  const quiet = v128.or(x, i32x4.splat(0x400000));
  return v128.and(v128.bitselect(rounded, quiet, f32x4.eq(x, x)), i32x4.splat(0xffff0000));
}

@inline
export function roundBf16(x: f32): f32 {
  const bits = reinterpret<u32>(x);
  const rounded = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1);
  return reinterpret<f32>(rounded & 0xffff0000);
}

/** A of four values. */
@inline
export function act4(x: v128): v128 {
  return isBf16 ? roundBf16x4(x) : x;
}

/** A of one value. */
@inline
export function act(x: f32): f32 {
  return isBf16 ? roundBf16(x) : x;
}

/** Four bfloat16 at `at`, widened. */
@inline
export function loadBf16x4(at: usize): v128 {
  return i32x4.shl(v128.load16x4_u(at), 16);
}

/**
 * Four halfs, each in the low bits of a 32-bit lane, widened. Shifted into place, a half is its value times 2^-112, also
 * when it is subnormal; infinity and NaN need the exponent's upper bits set.
 */
@inline
export function widenF16x4(halfs: v128): v128 {
  const sign = i32x4.shl(v128.and(halfs, i32x4.splat(0x8000)), 16);
  const magnitude = i32x4.shl(v128.and(halfs, i32x4.splat(0x7fff)), 13);
  const scaled = f32x4.mul(magnitude, f32x4.splat(reinterpret<f32>(0x77800000)));
  const special = i32x4.ge_s(magnitude, i32x4.splat(0x0f800000));
  return v128.or(v128.or(scaled, v128.and(special, i32x4.splat(0x7f800000))), sign);
}

/** Four bfloat16-valued float32 to four bfloat16 at `at`. */
@inline
export function storeBf16x4(at: usize, x: v128): void {
  const high = i8x16.shuffle(x, x, 2, 3, 6, 7, 10, 11, 14, 15, 2, 3, 6, 7, 10, 11, 14, 15);
  v128.store64_lane(at, high, 0);
}

/** The first `count` (1 to 3) float32 at `at`, the other lanes +0. */
export function loadPart(at: usize, count: i32): v128 {
  let x = v128.load32_zero(at);
  if (count > 1) x = f32x4.replace_lane(x, 1, load<f32>(at, 4));
  if (count > 2) x = f32x4.replace_lane(x, 2, load<f32>(at, 8));
  return x;
}

/** Writes the first `count` (1 to 3) lanes. */
export function storePart(at: usize, x: v128, count: i32): void {
  v128.store32_lane(at, x, 0);
  if (count > 1) v128.store32_lane(at, x, 1, 4);
  if (count > 2) v128.store32_lane(at, x, 2, 8);
}

/** Four lanes, or the first `left` where fewer are left. */
@inline
export function load4(at: usize, left: i32): v128 {
  return left >= 4 ? v128.load(at) : loadPart(at, left);
}

@inline
export function store4(at: usize, x: v128, left: i32): void {
  if (left >= 4) v128.store(at, x);
  else storePart(at, x, left);
}
