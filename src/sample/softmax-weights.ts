/**
 * The exponentials of a softmax row, e^(l / T - max / T) in float64, for every id of the vocabulary: the one V-sized
 * computation of a sampled token.
 *
 * e^v = 2^k * 2^(j/128) * e^r with v = (128 k + j) ln2 / 128 + r: a table and a polynomial of degree 5, multiplications and
 * additions only, so every machine gives the same bits. Invariants: error within 2 units in the last place; e^0 is exactly
 * 1, equal arguments give equal results; below -746, and for masked ids, the result is 0.
 */
import { exp2F64, expF64 } from '../numerics/exp.js';
import type { LogitsRow } from './validity.js';

const PARTS = 128;
const FRACTIONS = Float64Array.from({ length: PARTS }, (_, j) => exp2F64(j / PARTS));

/** Powers of two from 2^-1022 up to 2^0, at index k + LOWEST. */
const LOWEST = 1022;
const POWERS = Float64Array.from({ length: LOWEST + 1 }, (_, i) => 2 ** (i - LOWEST));

const SMALLEST_ARGUMENT = -746; // e^-746 rounds to 0
const SMALLEST_NORMAL = -708; // above it the result is a normal float64

const E_TO_MINUS_100 = expF64(-100);

const PARTS_PER_LN2 = PARTS * 1.4426950408889634;
const ROUND = 6755399441055744; // 1.5 * 2^52: adding and subtracting it rounds to an integer
const LN2_HIGH = 6.9314718036912381649e-1 / PARTS; // upper bits of ln 2, so that n * LN2_HIGH is exact
const LN2_LOW = 1.9082149292705877e-10 / PARTS;

/** e^v for v in [-708, 0]. */
function expOf(v: number): number {
  const n = v * PARTS_PER_LN2 + ROUND - ROUND;
  const r = v - n * LN2_HIGH - n * LN2_LOW;
  const scale = n | 0;
  const fraction = FRACTIONS[scale & (PARTS - 1)]!;
  const p = r + r * r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120))));
  return (fraction + fraction * p) * POWERS[(scale >> 7) + LOWEST]!;
}

/**
 * Fills weights[i] = e^(row[i] / temperature - top), each division and subtraction rounded to float64.
 * @param row no NaN, no +infinity. @param top finite, at least every row[i] / temperature.
 */
export function fillSoftmaxWeights(row: LogitsRow, temperature: number, top: number, weights: Float64Array): void {
  for (let i = 0; i < row.length; i++) {
    const v = row[i]! / temperature - top;
    if (v >= SMALLEST_NORMAL) weights[i] = expOf(v);
    else weights[i] = v > SMALLEST_ARGUMENT ? expOf(v + 100) * E_TO_MINUS_100 : 0;
  }
}
