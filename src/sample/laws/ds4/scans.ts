/**
 * The scans of a row in the DS4 law: greedy choice, the greatest finite logit, and finite logits in order.
 *
 * Invariants: comparisons are the IEEE ones, so NaN never wins; equal logits are ordered by lower id; a scan that starts
 * at `start` finds nothing at or below it and then answers 0.
 */

const isFinite32 = (value: number): boolean => value - value === 0;

/** First index of the greatest value above `start`, +infinity included; 0 when there is none. */
export function greedyIndex(row: Float32Array, start: number): number {
  let best = 0;
  let value = start;
  for (let i = 0; i < row.length; i++) {
    if (row[i]! > value) {
      value = row[i]!;
      best = i;
    }
  }
  return best;
}

/**
 * Greedy without one id: the first other index is the anchor, also when its value is NaN (then nothing is greater).
 * @returns 0 for a row of that id alone.
 */
export function greedyWithout(row: Float32Array, excluded: number): number {
  let best = excluded === 0 ? 1 : 0;
  if (best >= row.length) return 0;
  for (let i = best + 1; i < row.length; i++) {
    if (i !== excluded && row[i]! > row[best]!) best = i;
  }
  return best;
}

export interface FiniteMaximum {
  /** How many logits are finite. */
  readonly count: number;
  readonly max: number;
  /** Its first index; 0 when nothing finite is above `start`. */
  readonly best: number;
}

/** The greatest finite logit, by a scan from `start`. */
export function finiteMaximum(row: Float32Array, start: number): FiniteMaximum {
  let count = 0;
  let max = start;
  let best = 0;
  for (let i = 0; i < row.length; i++) {
    const value = row[i]!;
    if (!isFinite32(value)) continue;
    count++;
    if (value > max) {
      max = value;
      best = i;
    }
  }
  return { count, max, best };
}

/** Finite ids of a row one by one, greatest logit first, equal ones by lower id: a heap, so that a prefix is cheap. */
export class DescendingIds {
  readonly #heap: Int32Array;
  #size = 0;

  constructor(private readonly row: Float32Array) {
    const heap = new Int32Array(row.length);
    for (let i = 0; i < row.length; i++) if (isFinite32(row[i]!)) heap[this.#size++] = i;
    this.#heap = heap;
    for (let at = (this.#size >> 1) - 1; at >= 0; at--) this.#sink(at);
  }

  /** Ids that are left. */
  get size(): number {
    return this.#size;
  }

  /** The next id, or undefined when none is left. */
  next(): number | undefined {
    if (this.#size === 0) return undefined;
    const top = this.#heap[0]!;
    this.#heap[0] = this.#heap[--this.#size]!;
    this.#sink(0);
    return top;
  }

  /** At most `count` ids. */
  take(count: number): number[] {
    const ids: number[] = [];
    for (let id = count > 0 ? this.next() : undefined; id !== undefined; id = this.next()) {
      ids.push(id);
      if (ids.length === count) break;
    }
    return ids;
  }

  #before(a: number, b: number): boolean {
    const left = this.row[a]!;
    const right = this.row[b]!;
    return left > right || (left === right && a < b);
  }

  #sink(from: number): void {
    const heap = this.#heap;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#size) return;
      if (child + 1 < this.#size && this.#before(heap[child + 1]!, heap[child]!)) child++;
      if (!this.#before(heap[child]!, heap[at]!)) return;
      [heap[at], heap[child]] = [heap[child]!, heap[at]!];
      at = child;
    }
  }
}
