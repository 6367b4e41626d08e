/**
 * Stored elements to float32. Every conversion is exact: bfloat16 and float16 are subsets of float32, so nothing is
 * rounded; NaN payloads keep their bits. The machine must be little-endian, as safetensors files and all our targets are.
 */
import type { FloatDtype } from './tensor.js';

/** Bytes of one element. */
export const FLOAT_BYTES: Readonly<Record<FloatDtype, number>> = { BF16: 2, F16: 2, F32: 4 };

/** Float32 bits of a bfloat16 or float16 bit pattern. */
export function bf16Bits(half: number): number {
  return half << 16;
}

export function f16Bits(half: number): number {
  const sign = (half & 0x8000) << 16;
  const exponent = (half >>> 10) & 0x1f;
  const mantissa = half & 0x3ff;
  if (exponent === 0x1f) return sign | 0x7f800000 | (mantissa << 13);
  if (exponent !== 0) return sign | ((exponent + 112) << 23) | (mantissa << 13);
  if (mantissa === 0) return sign;
  // Subnormal: shift until the leading one is where float32 leaves it out.
  const shift = Math.clz32(mantissa) - 21;
  return sign | ((113 - shift) << 23) | (((mantissa << shift) & 0x3ff) << 13);
}

/** Elements as their bit patterns: 16-bit words for BF16 and F16, 32-bit words for F32. */
export type FloatWords = Uint16Array | Uint32Array;

/** Convert `count` elements from `words[from]` on into float32 bits from `out[to]` on. */
export function widen(
  dtype: FloatDtype,
  words: FloatWords,
  from: number,
  out: Uint32Array,
  to: number,
  count: number,
): void {
  if (dtype === 'BF16') {
    for (let i = 0; i < count; i++) out[to + i] = bf16Bits(words[from + i] as number);
  } else if (dtype === 'F16') {
    for (let i = 0; i < count; i++) out[to + i] = f16Bits(words[from + i] as number);
  } else {
    for (let i = 0; i < count; i++) out[to + i] = words[from + i] as number;
  }
}

/** The words of `count` elements at the start of `bytes`, which may begin at any address. */
export function floatWords(dtype: FloatDtype, bytes: Uint8Array, count: number): FloatWords {
  const width = FLOAT_BYTES[dtype];
  const { buffer, byteOffset } = bytes.byteOffset % width === 0 ? bytes : bytes.slice(0, width * count);
  return dtype === 'F32' ? new Uint32Array(buffer, byteOffset, count) : new Uint16Array(buffer, byteOffset, count);
}

/**
 * Convert `out.length` elements that start at `bytes[0]`.
 *
 * @param bytes at least out.length · FLOAT_BYTES[dtype] bytes, at any alignment
 */
export function toFloat32(dtype: FloatDtype, bytes: Uint8Array, out: Float32Array): void {
  const count = out.length;
  widen(dtype, floatWords(dtype, bytes, count), 0, new Uint32Array(out.buffer, out.byteOffset, count), 0, count);
}
