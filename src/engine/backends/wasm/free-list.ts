/**
 * Which ranges of an address space are free: first fit, with neighbours joined when a range comes back.
 *
 * Invariants: free ranges are ascending, not empty, and no two touch; every range that is taken or given back is a
 * multiple of the alignment, so all ranges stay aligned. Only addresses are kept here, never bytes.
 */
import { PlumblineError } from '../../../errors.js';
import type { Address } from '../backend.js';

/** Every range starts and ends at a multiple of this: a cache line. */
export const ALIGNMENT = 64;

/** `bytes` rounded up to whole ranges; nothing is smaller than one. */
export function rangeBytes(bytes: number): number {
  return Math.max(1, Math.ceil(bytes / ALIGNMENT)) * ALIGNMENT;
}

interface Range {
  start: Address;
  end: Address;
}

export class FreeList {
  readonly #ranges: Range[] = [];

  /** Bytes that are free, in however many ranges. */
  get free(): number {
    return this.#ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  }

  /** Bytes free directly below `end`. */
  freeBelow(end: Address): number {
    const last = this.#ranges.at(-1);
    return last?.end === end ? end - last.start : 0;
  }

  /** The start of `bytes` free bytes, now taken; undefined when no range is that long. */
  take(bytes: number): Address | undefined {
    const index = this.#ranges.findIndex(({ start, end }) => end - start >= bytes);
    const range = this.#ranges[index];
    if (!range) return undefined;
    const { start } = range;
    range.start += bytes;
    if (range.start === range.end) this.#ranges.splice(index, 1);
    return start;
  }

  /** Makes `bytes` from `start` free. Throws internal_error where a part of them already is. */
  give(start: Address, bytes: number): void {
    const end = start + bytes;
    const index = this.#firstAbove(start);
    const before = this.#ranges[index - 1];
    const after = this.#ranges[index];
    if ((before && before.end > start) || (after && after.start < end)) {
      throw new PlumblineError('internal_error', `memory at ${start} (${bytes} bytes) was given back twice`);
    }
    if (before?.end === start) {
      before.end = end;
      if (after?.start === end) {
        before.end = after.end;
        this.#ranges.splice(index, 1);
      }
    } else if (after?.start === end) {
      after.start = start;
    } else {
      this.#ranges.splice(index, 0, { start, end });
    }
  }

  /** Index of the first range that starts above `address`. */
  #firstAbove(address: Address): number {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ranges[middle]!.start <= address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
