/**
 * The state of a sequence as an immutable value: a fixed slab, a list of pages, and the token ids they were made from.
 *
 * Invariants: a value never changes once it is made. `extend` makes the successor: a new fixed slab, the same pages (one
 * holder more), and where the last page is partly filled, that page itself if nobody else has appended to it, else a copy.
 * So a fork, a refused draft or a failed forward leaves no trace in the value it grew from. Positions past a value's
 * length are never read through it.
 */
import { PlumblineError } from '../../errors.js';
import { MOST_WAITING } from '../../sessions/checkpoints/save-queue.js';
import type { Holding } from '../../sessions/types.js';
import type { SequenceState } from '../model.js';
import type { StateLayout } from './layout.js';
import { SlabPool, type Slab } from './slab-pool.js';
import type { Backend } from '../backends/backend.js';

/** A page and how far it has been appended to; `tokens` are the ids of its positions. */
export interface Page {
  readonly slab: Slab;
  readonly tokens: Int32Array;
  filled: number;
  /** Stands for what a full page holds; another object as soon as a row of it is written a second time. */
  identity: object;
}

/** Memory of a value in the making. */
export interface StateMemory {
  readonly fixed: Slab;
  readonly pages: readonly Slab[];
}

export class PagedState implements SequenceState {
  readonly length: number;
  readonly fixed: Slab;
  readonly pages: readonly Page[];
  readonly store: StateStore;
  #holders = 1;

  constructor(store: StateStore, length: number, fixed: Slab, pages: readonly Page[]) {
    this.store = store;
    this.length = length;
    this.fixed = fixed;
    this.pages = pages;
  }

  get bytes(): number {
    return this.store.layout.fixedBytes + this.pages.length * this.store.layout.pageBytes;
  }

  retain(): this {
    this.assertHeld();
    this.#holders++;
    return this;
  }

  release(): void {
    this.assertHeld();
    if (--this.#holders > 0) return;
    this.fixed.release();
    for (const page of this.pages) page.slab.release();
  }

  holdings(): readonly Holding[] {
    const { fixedBytes, pageBytes } = this.store.layout;
    return [{ key: this.fixed, bytes: fixedBytes }, ...this.pages.map(({ slab }) => ({ key: slab, bytes: pageBytes }))];
  }

  /** The id at `position`, which must be below `length`. */
  token(position: number): number {
    const { pageTokens } = this.store.layout;
    return this.pages[Math.floor(position / pageTokens)]!.tokens[position % pageTokens]!;
  }

  /** All ids, in order. */
  tokens(): Int32Array {
    return Int32Array.from({ length: this.length }, (_, position) => this.token(position));
  }

  /**
   * The bytes of every part of the value, by part name, as copies: fixed parts whole, of page parts the rows whose tokens
   * all lie below `length`, in order, one group after the other. Two values of equal meaning have equal bytes here.
   */
  snapshot(): ReadonlyMap<string, Uint8Array> {
    this.assertHeld();
    const { parts, pageTokens } = this.store.layout;
    const copies = new Map<string, Uint8Array>();
    for (const part of parts) {
      if (part.place === 'fixed') {
        copies.set(part.name, this.fixed.bytes.slice(part.offset, part.offset + part.bytes));
        continue;
      }
      const rows = Math.floor(this.length / part.tokensPerRow);
      const rowsPerPage = pageTokens / part.tokensPerRow;
      const copy = new Uint8Array(part.groups * rows * part.rowBytes);
      for (let group = 0; group < part.groups; group++) {
        for (let row = 0; row < rows; row++) {
          const page = this.pages[Math.floor(row / rowsPerPage)]!;
          const from = part.offset + (group * rowsPerPage + (row % rowsPerPage)) * part.rowBytes;
          copy.set(page.slab.bytes.subarray(from, from + part.rowBytes), (group * rows + row) * part.rowBytes);
        }
      }
      copies.set(part.name, copy);
    }
    return copies;
  }

  assertHeld(): void {
    if (this.#holders === 0) throw new PlumblineError('internal_error', 'a released sequence state was used');
  }
}

/** Most slabs and pages that all values together may hold. */
export interface StateLimits {
  readonly fixedSlabs: number;
  readonly pages: number;
}

/** Values that are held beyond their requests. */
export interface KeptStates {
  /** For later turns, in slabs or in pages. */
  readonly keptBytes: number;
  /** For a writer: what waits for it, and what it writes. */
  readonly waitingBytes: number;
}

/** Values that wait for a writer, the one that it writes, and one that has just come. */
const WAITING_VALUES = MOST_WAITING + 2;

/** Memory of states that wait to be written: so many recurrent parts, and the pages of one sequence that fills its context. */
export function waitingStateBytes({ fixedBytes, pageBytes, pageTokens }: StateLayout, contextTokens: number): number {
  return WAITING_VALUES * (fixedBytes + pageBytes) + Math.ceil(contextTokens / pageTokens) * pageBytes;
}

/**
 * What `sequences` running sequences of up to `contextTokens` need, each holding up to `values` values of its state at a
 * time: a fixed slab for each, the pages of one, and for every further one perhaps a copy of its last page. On top, what
 * values that are kept beyond their request may take.
 */
export function stateLimits(
  layout: StateLayout,
  sequences: number,
  contextTokens: number,
  values: number,
  { keptBytes, waitingBytes }: KeptStates = { keptBytes: 0, waitingBytes: 0 },
): StateLimits {
  const pages = Math.ceil(contextTokens / layout.pageTokens);
  const pieces = (bytes: number, slabBytes: number): number => Math.ceil(bytes / Math.max(slabBytes, 64));
  const waiting = waitingBytes > 0 ? WAITING_VALUES : 0;
  return {
    fixedSlabs: values * sequences + 1 + waiting + pieces(keptBytes, layout.fixedBytes),
    pages:
      sequences * (pages + values - 1) + pieces(waitingBytes, layout.pageBytes) + pieces(keptBytes, layout.pageBytes),
  };
}

export class StateStore {
  readonly layout: StateLayout;
  readonly #fixed: SlabPool;
  readonly #pages: SlabPool;

  constructor(backend: Backend, layout: StateLayout, limits: StateLimits) {
    this.layout = layout;
    this.#fixed = new SlabPool(backend, 'recurrent and convolution states', layout.fixedBytes, limits.fixedSlabs);
    this.#pages = new SlabPool(backend, 'key and value pages', layout.pageBytes, limits.pages);
  }

  /** The value of no tokens: everything zero. */
  empty(): PagedState {
    return new PagedState(this, 0, this.#fixed.take('zeroed'), []);
  }

  /**
   * The successor of `state` after `tokens`, its memory reserved but not yet computed: a plan fills it. The caller owns
   * it and releases it if the plan does not complete. Throws out_of_memory with nothing taken.
   */
  extend(state: PagedState, tokens: readonly number[] | Int32Array): PagedState {
    state.assertHeld();
    const { pageTokens } = this.layout;
    const length = state.length + tokens.length;
    const taken: Slab[] = [];
    try {
      const fixed = this.#fixed.take('any'); // every part of it is written by the plan
      taken.push(fixed);
      const pages = state.pages.slice(0, Math.ceil(state.length / pageTokens));
      const inLast = state.length % pageTokens;
      const last = inLast > 0 ? pages[pages.length - 1] : undefined;
      if (last && last.filled !== inLast && last.slab.holders > 1) {
        const copy: Page = {
          slab: this.#pages.take('zeroed'),
          tokens: last.tokens.slice(),
          filled: inLast,
          identity: {},
        };
        taken.push(copy.slab);
        copy.slab.bytes.set(last.slab.bytes);
        pages[pages.length - 1] = copy;
      } else if (last && last.filled !== inLast) {
        last.identity = {}; // rows that a value which is gone had appended are written again
      }
      const shared = pages.filter((page) => !taken.includes(page.slab));
      while (pages.length * pageTokens < length) {
        const slab = this.#pages.take('zeroed');
        taken.push(slab);
        pages.push({ slab, tokens: new Int32Array(pageTokens), filled: 0, identity: {} });
      }
      for (const page of shared) page.slab.retain();
      this.#append(pages, state.length, tokens);
      return new PagedState(this, length, fixed, pages);
    } catch (error) {
      for (const slab of taken) slab.release();
      throw error;
    }
  }

  /** Names the last token of a value in the making, which only the plan that made it knows. */
  nameLast(state: PagedState, token: number): void {
    state.assertHeld();
    const { pageTokens } = this.layout;
    const position = state.length - 1;
    state.pages[Math.floor(position / pageTokens)]!.tokens[position % pageTokens] = token;
  }

  /**
   * The first `length` tokens of `state` as a value of their own, its pages shared, its fixed slab reserved but not yet
   * computed: a commit plan fills it. Throws out_of_memory with nothing taken.
   */
  truncate(state: PagedState, length: number): PagedState {
    state.assertHeld();
    const fixed = this.#fixed.take('any');
    const pages = state.pages.slice(0, Math.ceil(length / this.layout.pageTokens));
    for (const page of pages) page.slab.retain();
    return new PagedState(this, length, fixed, pages);
  }

  /** Whether a value is of this store. */
  owns(state: PagedState): boolean {
    return state.store === this;
  }

  /**
   * Memory for a value that is not computed but filled in from elsewhere: all of it but the last page must be written.
   * Throws out_of_memory with nothing taken.
   */
  take(pages: number): StateMemory {
    const taken: Slab[] = [];
    try {
      const fixed = this.#fixed.take('any');
      taken.push(fixed);
      const slabs = Array.from({ length: pages }, () => {
        const slab = this.#pages.take('any');
        taken.push(slab);
        return slab;
      });
      return { fixed, pages: slabs };
    } catch (error) {
      for (const slab of taken) slab.release();
      throw error;
    }
  }

  /** The pages of memory that will hold `tokens`. */
  nameTokens({ pages }: StateMemory, tokens: Int32Array): readonly Page[] {
    const { pageTokens } = this.layout;
    return pages.map((slab, index): Page => {
      const own = tokens.subarray(index * pageTokens, (index + 1) * pageTokens);
      const ids = new Int32Array(pageTokens);
      ids.set(own);
      return { slab, tokens: ids, filled: own.length, identity: {} };
    });
  }

  /** The value of `length` tokens over memory that has been filled, and its pages; takes the memory over. */
  make({ fixed }: StateMemory, pages: readonly Page[], length: number): PagedState {
    return new PagedState(this, length, fixed, pages);
  }

  /** Bytes reserved from the backend and in use by live states. */
  usage(): { readonly allocated: number; readonly used: number } {
    const fixed = this.#fixed.usage();
    const pages = this.#pages.usage();
    return { allocated: fixed.allocated + pages.allocated, used: fixed.used + pages.used };
  }

  close(): void {
    this.#fixed.close();
    this.#pages.close();
  }

  #append(pages: readonly Page[], from: number, tokens: readonly number[] | Int32Array): void {
    const { pageTokens } = this.layout;
    for (let i = 0; i < tokens.length; i++) {
      const position = from + i;
      const page = pages[Math.floor(position / pageTokens)]!;
      page.tokens[position % pageTokens] = tokens[i]!;
      page.filled = (position % pageTokens) + 1;
    }
  }
}
