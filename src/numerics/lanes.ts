/**
 * The lane law: how every float32 dot product of plumbline is summed, whatever the vector width of the machine.
 *
 * Sixteen float32 accumulators start at +0; lane j takes the products k = j, j + 16, j + 32, … in ascending order, each
 * by one fused multiply-add (law `fma`) or by a multiplication and an addition, both rounded (law `mul-add`, the only one
 * that baseline WebAssembly can do). The last, partial group is padded with zeros. Then a fixed tree: lane j += lane j + 8,
 * += lane j + 4, += lane j + 2, += lane j + 1.
 */

export type FloatLaw = 'fma' | 'mul-add';

export const LANES = 16;
const fround = Math.fround;

const f64 = new Float64Array(1);
const words = new Int32Array(f64.buffer);

/**
 * a * b + c rounded once to float32, for float32 operands; the same bits as a hardware fused multiply-add.
 *
 * The product is exact in float64. Rounding the float64 sum again is right unless that sum lies exactly on a float32 tie
 * and had itself been rounded; only then is the error of the sum looked at.
 */
export function fmaF32(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  const rounded = fround(sum);
  const distance = sum - rounded;
  if (distance !== 0 && fround(sum + distance) === sum + distance) return roundTie(product, c, sum);
  return rounded;
}

/** The float64 sum rounded to odd (its last bit then says that it was inexact), then to float32. */
function roundTie(product: number, c: number, sum: number): number {
  const cPart = sum - product;
  const error = product - (sum - cPart) + (c - cPart); // exact: Knuth's TwoSum
  if (error === 0) return fround(sum);
  f64[0] = sum;
  if ((words[0]! & 1) === 0) {
    if (error > 0 === sum > 0) words[0]! |= 1;
    else f64[0] = stepTowardsZero();
  }
  return fround(f64[0]);
}

/** The next float64 below in magnitude of the one in `f64`. */
function stepTowardsZero(): number {
  const low = words[0]!;
  words[0] = low - 1;
  if (low === 0) words[1]!--;
  return f64[0]!;
}

/** a * b, then + c, each rounded to float32. */
export function mulAddF32(a: number, b: number, c: number): number {
  return fround(fround(a * b) + c);
}

/** The sum of 16 lanes by the tree; `lanes` is used as scratch. */
export function reduceLanes(lanes: Float32Array): number {
  for (let width = LANES / 2; width >= 1; width /= 2) {
    for (let j = 0; j < width; j++) lanes[j] = lanes[j]! + lanes[j + width]!;
  }
  return lanes[0]!;
}

const scratch = new Float32Array(LANES);

/** Dot product of a[aFrom …] and b[bFrom …], `length` elements of float32 value, under the lane law. */
export function laneDot(
  a: ArrayLike<number>,
  aFrom: number,
  b: ArrayLike<number>,
  bFrom: number,
  length: number,
  law: FloatLaw = 'fma',
): number {
  scratch.fill(0);
  if (law === 'fma') {
    for (let k = 0; k < length; k++) scratch[k & 15] = fmaF32(a[aFrom + k]!, b[bFrom + k]!, scratch[k & 15]!);
  } else {
    for (let k = 0; k < length; k++) scratch[k & 15] = fround(a[aFrom + k]! * b[bFrom + k]!) + scratch[k & 15]!;
  }
  padLanes(length);
  return reduceLanes(scratch);
}

/** Sum of x[from …] under the lane law (every product is x * 1). */
export function laneSum(x: ArrayLike<number>, from: number, length: number): number {
  scratch.fill(0);
  for (let k = 0; k < length; k++) scratch[k & 15] = scratch[k & 15]! + x[from + k]!;
  padLanes(length);
  return reduceLanes(scratch);
}

/** The zero products of a partial last group: they turn a lane of -0 (an underflowed sum) into +0. */
function padLanes(length: number): void {
  if (length % LANES === 0) return;
  for (let lane = length % LANES; lane < LANES; lane++) scratch[lane] = scratch[lane]! + 0;
}
