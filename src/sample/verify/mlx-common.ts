/**
 * Pieces that the MLX fixture formats share: float types by name, and comparisons of IEEE bits.
 *
 * Invariant: bits compare exactly, except that one NaN is as good as another.
 */
import { FLOAT_TYPES, type FloatType } from '../../numerics/mlx/float-type.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';

export function floatTypeOf(line: Fields, key = 'dtype'): FloatType {
  const name = line.text(key);
  if (name !== 'f32' && name !== 'bf16' && name !== 'f16') line.refuse(key, '"f32", "bf16" or "f16"');
  return FLOAT_TYPES[name];
}

/** The values that a field's bits stand for. */
export function valuesOf(line: Fields, key: string, type: FloatType): number[] {
  return line.bits(key).map((bits) => type.fromBits(bits));
}

/** Bits of values, NaN as -1. */
const comparable = (values: ArrayLike<number>, type: FloatType): number[] =>
  Array.from(values, (value) => (Number.isNaN(value) ? -1 : type.toBits(value)));

/** Values against the field's bits. */
export function checkBits(
  check: Checker,
  what: string,
  got: ArrayLike<number>,
  line: Fields,
  key: string,
  type: FloatType,
): void {
  check.sequence(what, comparable(got, type), comparable(valuesOf(line, key, type), type));
}
