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

/**
 * Convert `out.length` elements that start at `bytes[0]`.
 *
 * @param bytes at least out.length · FLOAT_BYTES[dtype] bytes, at any alignment
 */
export function toFloat32(dtype: FloatDtype, bytes: Uint8Array, out: Float32Array): void {
  const count = out.length;
  const target = new Uint32Array(out.buffer, out.byteOffset, count);
  if (dtype === 'F32') {
    new Uint8Array(out.buffer, out.byteOffset, 4 * count).set(bytes.subarray(0, 4 * count));
    return;
  }
  const source = halves(bytes, count);
  if (dtype === 'BF16') {
    for (let i = 0; i < count; i++) target[i] = bf16Bits(source[i] as number);
  } else {
    for (let i = 0; i < count; i++) target[i] = f16Bits(source[i] as number);
  }
}

function halves(bytes: Uint8Array, count: number): Uint16Array {
  if (bytes.byteOffset % 2 === 0) return new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  return new Uint16Array(bytes.slice(0, 2 * count).buffer);
}
