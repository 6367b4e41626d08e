/**
 * The sigmoid of MLX's CPU back end: e^|x| is rounded to the array's type, then 1 / (1 + e) and 1 - y stay in float32 and
 * the result is rounded once. Eager and compiled forms agree. It differs from Metal's at 778 bfloat16 inputs and is kept
 * only to judge recorded CPU tables.
 */
import { cpuExpF32 } from './cpu-exp.js';
import type { FloatType, FloatTypeName } from './float-type.js';

const fround = Math.fround;

/** What MLX's software types make of any NaN. */
const NAN_BITS: Readonly<Record<FloatTypeName, number>> = { f32: 0x7fc00000, bf16: 0x7fc0, f16: 0x7d00 };

/** sigmoid(x), rounded to the type. */
export function cpuSigmoid(x: number, type: FloatType): number {
  const e = type.round(cpuExpF32(Math.abs(x)));
  const y = fround(1 / fround(1 + e));
  return type.round(x < 0 ? y : fround(1 - y));
}

/** All 65,536 results of factor * sigmoid(x) for a 16-bit type, indexed by input bits; factor 1 is the sigmoid itself. */
export function cpuSigmoidTable(type: FloatType, factor: number): Uint16Array {
  return Uint16Array.from({ length: 0x10000 }, (_, bits) => {
    const result = fround(factor * cpuSigmoid(type.fromBits(bits), type));
    return Number.isNaN(result) ? NAN_BITS[type.name] : type.toBits(result);
  });
}
