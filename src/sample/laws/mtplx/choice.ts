/**
 * Drawing from a finite distribution as `numpy.random.Generator.choice` does: exactly one double, also for a single id.
 *
 * Invariant: the running sum is plain (not pairwise), every term of it is divided by the last one, and the index is the
 * number of those quotients that are <= u.
 */

/** Anything that gives uniform doubles in [0, 1): the request's generator, or doubles drawn beforehand. */
export interface UniformSource {
  nextDouble(): number;
}

/**
 * The index in [0, probs.length) that u selects.
 * @param probs non-negative, with a positive, finite sum; normalised or not.
 * @param divisor every entry is divided by it first (one rounding); 1 changes nothing.
 */
export function indexAt(probs: Float64Array, u: number, divisor = 1): number {
  let total = 0;
  for (let i = 0; i < probs.length; i++) total += probs[i]! / divisor;
  let running = 0;
  for (let i = 0; i < probs.length - 1; i++) {
    running += probs[i]! / divisor;
    if (running / total > u) return i;
  }
  return probs.length - 1;
}
