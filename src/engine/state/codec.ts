/**
 * State values as bytes, for checkpoints: full pages and the fixed slab as they lie in memory, the partly filled page as
 * the rows below the value's length alone, one part after the other, group after group.
 *
 * Invariants: nothing of a value past its length leaves it (such rows may belong to a refused draft); a value that is read
 * in has zeros there, like one that was computed.
 */
import { PlumblineError } from '../../errors.js';
import type { ExportedState, StateCodec, StateReservation } from '../../sessions/checkpoints/codec.js';
import type { SequenceState } from '../model.js';
import type { PagePart, StateLayout } from './layout.js';
import { PagedState, type Page, type StateStore } from './sequence-state.js';

export class PagedStateCodec implements StateCodec<SequenceState> {
  readonly fixedBytes: number;
  readonly pageBytes: number;
  readonly pageTokens: number;
  readonly #store: StateStore;

  constructor(store: StateStore) {
    this.#store = store;
    this.fixedBytes = store.layout.fixedBytes;
    this.pageBytes = store.layout.pageBytes;
    this.pageTokens = store.layout.pageTokens;
  }

  tailBytes(length: number): number {
    let bytes = 0;
    for (const { from, to } of tailRows(this.#store.layout, length % this.pageTokens)) bytes += to - from;
    return bytes;
  }

  export(given: SequenceState): ExportedState {
    const state = this.#own(given);
    const { length } = state;
    const full = Math.floor(length / this.pageTokens);
    const tailTokens = length % this.pageTokens;
    const last = state.pages[full];
    return {
      length,
      fixed: state.fixed.bytes.subarray(0, this.fixedBytes),
      pages: state.pages.slice(0, full).map(({ identity, slab, tokens }) => ({
        identity,
        bytes: slab.bytes.subarray(0, this.pageBytes),
        tokens,
      })),
      tail: this.#pack(last?.slab.bytes, length),
      tailTokens: last?.tokens.slice(0, tailTokens) ?? new Int32Array(0),
    };
  }

  identities(given: SequenceState): readonly object[] {
    const state = this.#own(given);
    return state.pages.slice(0, Math.floor(state.length / this.pageTokens)).map(({ identity }) => identity);
  }

  reserve(tokens: Int32Array): StateReservation<SequenceState> {
    const { length } = tokens;
    const full = Math.floor(length / this.pageTokens);
    const store = this.#store;
    const memory = store.take(Math.ceil(length / this.pageTokens));
    const last = memory.pages[full];
    last?.bytes.fill(0);
    let open = true;
    let pages: readonly Page[] | undefined;
    const end = (): void => {
      if (!open) throw new PlumblineError('internal_error', 'a reservation of a state was ended twice');
      open = false;
    };
    return {
      fixed: memory.fixed.bytes.subarray(0, this.fixedBytes),
      pages: memory.pages.slice(0, full).map(({ bytes }) => bytes.subarray(0, this.pageBytes)),
      setTail: (rows) => {
        let at = 0;
        for (const { from, to } of tailRows(store.layout, length % this.pageTokens)) {
          last?.bytes.set(rows.subarray(at, at + to - from), from);
          at += to - from;
        }
        if (at !== rows.length) {
          throw new PlumblineError('internal_error', `${rows.length} bytes for the ${at} of a state's last rows`);
        }
      },
      prepare: () => {
        pages ??= store.nameTokens(memory, tokens);
      },
      commit: () => {
        end();
        return store.make(memory, pages ?? store.nameTokens(memory, tokens), length);
      },
      abandon: () => {
        end();
        for (const slab of [memory.fixed, ...memory.pages]) slab.release();
      },
    };
  }

  #own(state: SequenceState): PagedState {
    if (!(state instanceof PagedState) || !this.#store.owns(state)) {
      throw new PlumblineError('internal_error', 'a state was exported through the codec of another store');
    }
    state.assertHeld();
    return state;
  }

  #pack(page: Uint8Array | undefined, length: number): Uint8Array {
    if (page === undefined) return new Uint8Array(0);
    const packed = new Uint8Array(this.tailBytes(length));
    let at = 0;
    for (const { from, to } of tailRows(this.#store.layout, length % this.pageTokens)) {
      packed.set(page.subarray(from, to), at);
      at += to - from;
    }
    return packed;
  }
}

/** The bytes of a page that belong to its first `tokens` tokens: of each group of each part the first whole rows. */
function* tailRows(layout: StateLayout, tokens: number): Generator<{ readonly from: number; readonly to: number }> {
  for (const part of layout.parts) {
    if (part.place !== 'page') continue;
    const rows = Math.floor(tokens / part.tokensPerRow);
    if (rows === 0) continue;
    for (let group = 0; group < part.groups; group++) {
      const from = part.offset + group * groupBytes(layout, part);
      yield { from, to: from + rows * part.rowBytes };
    }
  }
}

const groupBytes = (layout: StateLayout, part: PagePart): number =>
  (layout.pageTokens / part.tokensPerRow) * part.rowBytes;
