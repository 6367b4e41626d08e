/**
 * NumPy's float64 sum. Fewer than 8 terms: one by one. Up to 128: eight running sums joined as ((0+1)+(2+3))+((4+5)+(6+7)),
 * the rest one by one. More: the sums of two halves, the left one rounded down to a multiple of 8.
 *
 * Invariant: `pairwiseSumSparse` gives the bits of `pairwiseSum` on the full row with zeros in place, because adding +0
 * to a non-negative float64 changes nothing; it visits only blocks that hold an entry.
 */

const BLOCK = 128;

function leftHalf(length: number): number {
  const half = length >> 1;
  return half - (half % 8);
}

/** Sum of values[from … from + length), in NumPy's order. */
export function pairwiseSum(values: Float64Array, from = 0, length = values.length - from): number {
  if (length < 8) {
    let sum = 0;
    for (let i = from; i < from + length; i++) sum += values[i]!;
    return sum;
  }
  if (length > BLOCK) {
    const left = leftHalf(length);
    return pairwiseSum(values, from, left) + pairwiseSum(values, from + left, length - left);
  }
  let r0 = values[from]!;
  let r1 = values[from + 1]!;
  let r2 = values[from + 2]!;
  let r3 = values[from + 3]!;
  let r4 = values[from + 4]!;
  let r5 = values[from + 5]!;
  let r6 = values[from + 6]!;
  let r7 = values[from + 7]!;
  const whole = from + length - (length % 8);
  for (let i = from + 8; i < whole; i += 8) {
    r0 += values[i]!;
    r1 += values[i + 1]!;
    r2 += values[i + 2]!;
    r3 += values[i + 3]!;
    r4 += values[i + 4]!;
    r5 += values[i + 5]!;
    r6 += values[i + 6]!;
    r7 += values[i + 7]!;
  }
  let sum = r0 + r1 + (r2 + r3) + (r4 + r5 + (r6 + r7));
  for (let i = whole; i < from + length; i++) sum += values[i]!;
  return sum;
}

/**
 * The same sum over a row of `rowLength` that is zero but for values[i] at position ids[i].
 * @param ids ascending, in [0, rowLength).
 * @param values non-negative, as many as ids.
 */
export function pairwiseSumSparse(ids: Int32Array, values: Float64Array, rowLength: number): number {
  const accumulators = new Float64Array(8);
  let next = 0;
  const sumOf = (from: number, length: number): number => {
    if (next >= ids.length || ids[next]! >= from + length) return 0;
    if (length > BLOCK) {
      const left = leftHalf(length);
      return sumOf(from, left) + sumOf(from + left, length - left);
    }
    accumulators.fill(0);
    const whole = length < 8 ? from : from + length - (length % 8);
    for (; next < ids.length && ids[next]! < whole; next++) accumulators[(ids[next]! - from) % 8]! += values[next]!;
    const [r0, r1, r2, r3, r4, r5, r6, r7] = accumulators as unknown as [
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    let sum = r0 + r1 + (r2 + r3) + (r4 + r5 + (r6 + r7));
    for (; next < ids.length && ids[next]! < from + length; next++) sum += values[next]!;
    return sum;
  };
  return sumOf(0, rowLength);
}
