/**
 * Where the parts of a sequence state lie: a fixed slab (recurrent states, convolution tails), rewritten by every forward,
 * and pages of `pageTokens` tokens (keys, values, index keys), appended to.
 *
 * Invariants: offsets are 64-byte aligned; a layout is built once per model and never changes; parts have names, so that
 * comparisons and checkpoints can speak of them.
 */
import { createHash } from 'node:crypto';
import { PlumblineError } from '../../errors.js';

export interface FixedPart {
  readonly name: string;
  readonly place: 'fixed';
  /** Bytes from the start of the slab. */
  readonly offset: number;
  readonly bytes: number;
}

/** Rows of a page, [groups, pageTokens / tokensPerRow, rowBytes]: a row belongs to `tokensPerRow` consecutive tokens. */
export interface PagePart {
  readonly name: string;
  readonly place: 'page';
  /** Bytes from the start of the page. */
  readonly offset: number;
  readonly groups: number;
  readonly tokensPerRow: number;
  readonly rowBytes: number;
}

export type StatePart = FixedPart | PagePart;

export interface StateLayout {
  readonly parts: readonly StatePart[];
  readonly fixedBytes: number;
  readonly pageBytes: number;
  readonly pageTokens: number;
}

/** A name for a layout: states of equal names have the same parts in the same places. */
export function layoutHash(layout: StateLayout): string {
  return createHash('sha256').update(JSON.stringify(layout)).digest('hex').slice(0, 32);
}

const ALIGNMENT = 64;
const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

export class StateLayoutBuilder {
  readonly #parts: StatePart[] = [];
  readonly #sizes = { fixed: 0, page: 0 };

  constructor(readonly pageTokens: number) {}

  /** Reserves a part of the fixed slab; returns its byte offset. */
  fixed(name: string, bytes: number): number {
    const offset = this.#reserve('fixed', bytes);
    this.#parts.push({ name, place: 'fixed', offset, bytes });
    return offset;
  }

  /** Reserves rows in every page; returns the byte offset of the first. */
  page(name: string, shape: Pick<PagePart, 'groups' | 'tokensPerRow' | 'rowBytes'>): number {
    const rows = this.pageTokens / shape.tokensPerRow;
    if (!Number.isInteger(rows)) {
      throw new PlumblineError('plan_invalid', `${name}: a page of ${this.pageTokens} tokens does not hold whole rows`);
    }
    const offset = this.#reserve('page', shape.groups * rows * shape.rowBytes);
    this.#parts.push({ name, place: 'page', offset, ...shape });
    return offset;
  }

  finish(): StateLayout {
    return {
      parts: [...this.#parts],
      fixedBytes: this.#sizes.fixed,
      pageBytes: this.#sizes.page,
      pageTokens: this.pageTokens,
    };
  }

  #reserve(place: 'fixed' | 'page', bytes: number): number {
    const offset = this.#sizes[place];
    this.#sizes[place] += aligned(bytes);
    return offset;
  }
}
