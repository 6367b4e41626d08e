/**
 * Order in MLX 0.32: arg-max, arg-min, sort, selection and binary search.
 *
 * Order is ascending with NaN last; -0 and 0 tie, and so do NaN and NaN; ties keep their original order. Metal has no
 * selection: partition is sort. The CPU selects, which gives the same sets in an unspecified order, so callers compare
 * sets. Arg-max differs by back end: Metal starts from (index 0, -inf) and NaN never wins; the CPU starts from element 0
 * and a NaN there wins.
 */

export type MlxBackend = 'cpu' | 'metal';

/** Lowest index of the maximum under a back end's rule. */
export function argmax(x: ArrayLike<number>, backend: MlxBackend): number {
  let best = backend === 'cpu' ? x[0]! : -Infinity;
  let at = 0;
  for (let i = 0; i < x.length; i++) {
    if (x[i]! > best) {
      best = x[i]!;
      at = i;
    }
  }
  return at;
}

/** Lowest index of the minimum under a back end's rule. */
export function argmin(x: ArrayLike<number>, backend: MlxBackend): number {
  return argmax(
    Array.from(x, (value) => -value),
    backend,
  );
}

/** Maximum that NaN wins (both back ends). */
export function maxPropagatingNaN(x: ArrayLike<number>): number {
  return Array.from(x).reduce((a, b) => (Number.isNaN(a) || Number.isNaN(b) ? Number.NaN : b > a ? b : a), -Infinity);
}

/** Minimum that NaN wins (both back ends). */
export function minPropagatingNaN(x: ArrayLike<number>): number {
  return -maxPropagatingNaN(Array.from(x, (value) => -value));
}

/** Whether a comes strictly before b: ascending, NaN last. */
function before(a: number, b: number): boolean {
  if (Number.isNaN(a)) return false;
  return Number.isNaN(b) || a < b;
}

/** Indices in stable ascending order, NaN last. */
export function argsort(x: ArrayLike<number>): number[] {
  return Array.from(x, (_, i) => i).sort((a, b) => (before(x[a]!, x[b]!) ? -1 : before(x[b]!, x[a]!) ? 1 : a - b));
}

/** Values in stable ascending order, NaN last. */
export function sorted(x: ArrayLike<number>): number[] {
  return argsort(x).map((i) => x[i]!);
}

/** The k largest (NaN counts as largest), ascending; k = length returns x in its own order. */
export function topk(x: ArrayLike<number>, k: number): number[] {
  return k === x.length ? Array.from(x) : sorted(x).slice(x.length - k);
}

/** Position of v in an ascending, NaN-last sequence: `left` counts entries before v, `right` entries not after v. */
export function searchsorted(sequence: ArrayLike<number>, v: number, side: 'left' | 'right'): number {
  let low = 0;
  let high = sequence.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const entry = sequence[middle]!;
    const goRight = side === 'left' ? before(entry, v) : !before(v, entry);
    if (goRight) low = middle + 1;
    else high = middle;
  }
  return low;
}
