/**
 * The comparisons of the verifiers.
 */

/** Largest absolute difference; infinite when the lengths differ or a value is NaN, so that neither can pass. */
export function maxDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = Math.abs(a[i]! - b[i]!);
    if (!(difference <= worst)) worst = Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference;
  }
  return worst;
}

/** Lowest index of the greatest value; NaN never wins. For verification only: serving goes through the row check. */
export function argmax(row: Float32Array): number {
  let best = 0;
  for (let i = 1; i < row.length; i++) if (row[i]! > row[best]!) best = i;
  return best;
}
