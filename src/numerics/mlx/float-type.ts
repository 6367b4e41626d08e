/**
 * The three float types of MLX arrays as rounding rules. Values are held as JavaScript numbers that the type can
 * represent; every operation of MLX in a type is done in float32 and rounded to the type once.
 */
import {
  f32Bits,
  f32FromBits,
  fromBf16Bits,
  fromF16Bits,
  roundBf16,
  roundF16,
  toBf16Bits,
  toF16Bits,
} from '../rounding.js';

export type FloatTypeName = 'f32' | 'bf16' | 'f16';

export interface FloatType {
  readonly name: FloatTypeName;
  readonly hexDigits: 4 | 8;
  /** Nearest value of the type, ties to even. */
  round(x: number): number;
  toBits(x: number): number;
  fromBits(bits: number): number;
  /** Largest value below 1. */
  readonly belowOne: number;
}

export const FLOAT_TYPES: Readonly<Record<FloatTypeName, FloatType>> = {
  f32: {
    name: 'f32',
    hexDigits: 8,
    round: Math.fround,
    toBits: f32Bits,
    fromBits: f32FromBits,
    belowOne: 1 - 2 ** -24,
  },
  bf16: {
    name: 'bf16',
    hexDigits: 4,
    round: roundBf16,
    toBits: toBf16Bits,
    fromBits: fromBf16Bits,
    belowOne: 1 - 2 ** -8,
  },
  f16: { name: 'f16', hexDigits: 4, round: roundF16, toBits: toF16Bits, fromBits: fromF16Bits, belowOne: 1 - 2 ** -11 },
};
