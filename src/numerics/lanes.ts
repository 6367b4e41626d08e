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

/** a * b + c rounded once to float32, up to the rare case in which the float64 sum rounds onto a float32 tie. */
export function fmaF32(a: number, b: number, c: number): number {
  return fround(a * b + c);
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
  for (let k = 0; k < length; k++) {
    const lane = k % LANES;
    const product = a[aFrom + k]! * b[bFrom + k]!;
    scratch[lane] = law === 'fma' ? product + scratch[lane]! : fround(product) + scratch[lane]!;
  }
  return reduceLanes(scratch);
}

/** Sum of x[from …] under the lane law (every product is x * 1). */
export function laneSum(x: ArrayLike<number>, from: number, length: number): number {
  scratch.fill(0);
  for (let k = 0; k < length; k++) {
    const lane = k % LANES;
    scratch[lane] = scratch[lane]! + x[from + k]!;
  }
  return reduceLanes(scratch);
}
