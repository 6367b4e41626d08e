/**
 * Rounding between float64, float32, bfloat16 and float16: to nearest, ties to even, NaN stays NaN (quiet, sign kept).
 *
 * Invariants: `round*` takes any JavaScript number and returns one that the type can hold; values given to the 16-bit
 * functions are first rounded to float32, because that is what every engine of ours holds between rounding points.
 */

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

/** Bits of the float32 nearest to `x`. */
export function f32Bits(x: number): number {
  f32[0] = x;
  return u32[0]!;
}

/** The float32 with these bits. */
export function f32FromBits(bits: number): number {
  u32[0] = bits;
  return f32[0]!;
}

/** Upper 16 bits of float32 `x` rounded to bfloat16. */
export function toBf16Bits(x: number): number {
  f32[0] = x;
  const bits = u32[0]!;
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** The float32 that bfloat16 bits stand for. */
export function fromBf16Bits(bits: number): number {
  u32[0] = bits << 16;
  return f32[0]!;
}

/** float32 `x` rounded to bfloat16, as a number. */
export function roundBf16(x: number): number {
  return fromBf16Bits(toBf16Bits(x));
}

/** Bits of float32 `x` rounded to IEEE half; subnormals kept, overflow to infinity. */
export function toF16Bits(x: number): number {
  f32[0] = x;
  const bits = u32[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and above round to infinity
  if (magnitude >= 0x38800000) {
    const rebased = magnitude - 0x38000000; // exponent bias 127 -> 15
    return sign | ((rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13);
  }
  // Subnormal half: the value in units of 2^-24, rounded to an integer; the scaling is exact in float64.
  const units = Math.abs(f32[0]) * 2 ** 24;
  const floor = Math.floor(units);
  const rest = units - floor;
  return sign | (rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor);
}

/** The float32 that half bits stand for. */
export function fromF16Bits(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

/** float32 `x` rounded to half, as a number. */
export function roundF16(x: number): number {
  return fromF16Bits(toF16Bits(x));
}
