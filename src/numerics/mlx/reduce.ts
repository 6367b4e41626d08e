/**
 * Sums of MLX's CPU back end: sequential, in the array's own type.
 */
import type { FloatType } from './float-type.js';

/** Sum from +0, left to right, rounded to the type after every addition. */
export function sum(x: ArrayLike<number>, type: FloatType): number {
  return Array.from(x).reduce((total, value) => type.round(Math.fround(total + value)), 0);
}

export interface ScanOptions {
  /** Inclusive starts with a copy of the first element, exclusive with +0. */
  readonly inclusive: boolean;
  /** Right to left. */
  readonly reverse: boolean;
}

/** Running sums, rounded to the type after every addition. */
export function cumsum(x: ArrayLike<number>, type: FloatType, { inclusive, reverse }: ScanOptions): number[] {
  const input = Array.from(x);
  if (reverse) input.reverse();
  const out: number[] = [];
  for (const [i, value] of input.entries()) {
    if (inclusive) out.push(i === 0 ? value : type.round(Math.fround(out[i - 1]! + value)));
    else out.push(i === 0 ? 0 : type.round(Math.fround(out[i - 1]! + input[i - 1]!)));
  }
  return reverse ? out.reverse() : out;
}
