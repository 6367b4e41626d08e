/**
 * State values without a model: a real store of paged states over plain memory, and rows that are a function of all tokens
 * before them, so that a page of another history can never pass for the right one.
 */
import type { Backend, MemoryBlock } from '../../src/engine/backends/backend.js';
import { PagedStateCodec } from '../../src/engine/state/codec.js';
import { StateLayoutBuilder, type StateLayout } from '../../src/engine/state/layout.js';
import { StateStore, type PagedState } from '../../src/engine/state/sequence-state.js';
import type { SequenceState } from '../../src/engine/model.js';
import type { Capture, CaptureKind, StateStamp } from '../../src/sessions/types.js';

export const PAGE_TOKENS = 8;

function plainMemory(): Backend {
  const allocate = (byteLength: number): MemoryBlock => ({
    address: 64,
    bytes: new Uint8Array(byteLength),
    free: () => undefined,
  });
  return { allocate } as unknown as Backend;
}

/** @param scale bytes of a row, and a thirty-second of the fixed slab */
export function trunkLayout(scale = 4): StateLayout {
  const layout = new StateLayoutBuilder(PAGE_TOKENS);
  layout.fixed('recurrent', 32 * scale);
  layout.page('keys', { groups: 2, tokensPerRow: 1, rowBytes: scale });
  layout.page('blocks', { groups: 1, tokensPerRow: 4, rowBytes: scale });
  return layout.finish();
}

function headLayout(scale = 4): StateLayout {
  const layout = new StateLayoutBuilder(PAGE_TOKENS);
  layout.page('mtp.keys', { groups: 1, tokensPerRow: 1, rowBytes: scale });
  return layout.finish();
}

export const STAMP: StateStamp = {
  family: 'made-up',
  modelHash: 'f00d',
  activationLaw: 'f32',
  floatLaw: 'fma',
  engineLaw: '1',
  layoutHash: 'l1',
  lane: 'ar',
  gatePolicy: 'gate-1:strict',
  draftHead: false,
};
export const MTP_STAMP: StateStamp = { ...STAMP, lane: 'mtp', layoutHash: 'l1+h1', draftHead: true };
export const KNOWN_POLICIES = ['gate-1:strict', 'gate-1:uniform'];

/** A place where states live, as a model has one. */
export class StateHome {
  readonly trunk: StateStore;
  readonly head: StateStore;
  readonly codecs: { readonly trunk: PagedStateCodec; readonly head: PagedStateCodec };

  constructor(limits = { fixedSlabs: 10_000, pages: 100_000 }, scale = 4) {
    this.trunk = new StateStore(plainMemory(), trunkLayout(scale), limits);
    this.head = new StateStore(plainMemory(), headLayout(scale), limits);
    this.codecs = { trunk: new PagedStateCodec(this.trunk), head: new PagedStateCodec(this.head) };
  }

  /** The state of `tokens` from nothing, or grown from another, which stays the caller's. */
  state(tokens: readonly number[], from?: SequenceState, store = this.trunk): PagedState {
    const before = (from as PagedState | undefined) ?? store.empty();
    const after = store.extend(before, tokens.slice(before.length));
    if (from === undefined) before.release();
    const { parts } = store.layout;
    let hash = 1;
    for (let position = 0; position < after.length; position++) {
      hash = (Math.imul(hash, 31) + after.token(position) + 7) >>> 0;
      if (position < before.length && from !== undefined) continue;
      const page = after.pages[Math.floor(position / PAGE_TOKENS)]!.slab.bytes;
      for (const part of parts) {
        if (part.place === 'fixed' || (position + 1) % part.tokensPerRow !== 0) continue;
        const row = Math.floor((position % PAGE_TOKENS) / part.tokensPerRow);
        for (let group = 0; group < part.groups; group++) {
          const at = part.offset + (group * (PAGE_TOKENS / part.tokensPerRow) + row) * part.rowBytes;
          fill(page.subarray(at, at + part.rowBytes), hash + group);
        }
      }
    }
    for (const part of parts) {
      if (part.place === 'fixed')
        fill(after.fixed.bytes.subarray(part.offset, part.offset + part.bytes), hash ^ 0x5a5a);
    }
    return after;
  }

  /** A capture of `tokens`; the caller releases its values. */
  capture(tokens: readonly number[], options: CaptureOptions = {}): Capture<SequenceState> {
    const { kind = 'turn', lane = 'ar', from } = options;
    const capture = { kind, tokens: Int32Array.from(tokens), trunk: this.state(tokens, from?.trunk) };
    if (lane === 'ar') return capture;
    return {
      ...capture,
      head: this.state(tokens.slice(1), from?.head, this.head),
      hidden: Float32Array.from({ length: 6 }, (_, i) => tokens.length + i / 8),
    };
  }

  /** Bytes of living states. */
  get used(): number {
    return this.trunk.usage().used + this.head.usage().used;
  }
}

export interface CaptureOptions {
  readonly kind?: CaptureKind;
  readonly lane?: 'ar' | 'mtp';
  /** What it grows from, sharing its pages. */
  readonly from?: Capture<SequenceState> | undefined;
}

function fill(bytes: Uint8Array, seed: number): void {
  let state = seed >>> 0;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
}

export function release({ trunk, head }: Capture<SequenceState>): void {
  trunk.release();
  head?.release();
}

/** Everything that a capture says, in a form that can be compared. */
export function contents({ kind, tokens, trunk, head, hidden }: Capture<SequenceState>) {
  const parts = (state: SequenceState | undefined) =>
    state && [...(state as PagedState).snapshot()].map(([name, bytes]) => [name, Buffer.from(bytes).toString('hex')]);
  return {
    kind,
    tokens: [...tokens],
    ids: [...(trunk as PagedState).tokens()],
    trunk: parts(trunk),
    headIds: head && [...(head as PagedState).tokens()],
    head: parts(head),
    hidden: hidden && [...hidden],
  };
}

/** Ids that repeat nothing. */
export function idsOf(count: number, seed = 1): number[] {
  return Array.from({ length: count }, (_, i) => Math.imul(i + 1 + 1000 * seed, 2654435761) >>> 16);
}
