import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../../errors.js';
import type { Backend, MemoryBlock } from '../backends/backend.js';
import { PagedStateCodec } from './codec.js';
import { StateLayoutBuilder } from './layout.js';
import { StateStore, type PagedState } from './sequence-state.js';

const PAGE_TOKENS = 4;

/** Memory that is never clean, as that of a pool in use is not. */
const backend: Pick<Backend, 'allocate'> = {
  allocate: (byteLength): MemoryBlock => ({ address: 0, bytes: new Uint8Array(byteLength), free: () => undefined }),
};

function stores(limits = { fixedSlabs: 64, pages: 64 }) {
  const layout = new StateLayoutBuilder(PAGE_TOKENS);
  layout.fixed('sum', 4);
  layout.page('rows', { groups: 2, tokensPerRow: 1, rowBytes: 3 });
  layout.page('pairs', { groups: 1, tokensPerRow: 2, rowBytes: 5 });
  const store = new StateStore(backend as Backend, layout.finish(), limits);
  return { store, codec: new PagedStateCodec(store) };
}

/** What a plan would do: every row that belongs to new tokens is written, and the fixed slab. */
function computed(before: PagedState, after: PagedState, salt = 0): PagedState {
  for (let position = before.length; position < after.length; position++) {
    const page = after.pages[Math.floor(position / PAGE_TOKENS)]!.slab.bytes;
    const at = position % PAGE_TOKENS;
    const value = (after.token(position) * 7 + salt) & 255;
    for (const group of [0, 1])
      page.fill(value + group, (group * PAGE_TOKENS + at) * 3, (group * PAGE_TOKENS + at) * 3 + 3);
    if (at % 2 === 1) page.fill(value ^ 85, 64 + (at >> 1) * 5, 64 + (at >> 1) * 5 + 5);
  }
  after.fixed.bytes.fill(after.length & 255, 0, 4);
  return after;
}

test('a value read in from what was exported is the same value, and grows as the old one does', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 19 }),
      fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 9 }),
      (tokens, more) => {
        const from = stores();
        const to = stores();
        // The new home has been lived in: its slabs are dirty.
        computed(to.store.empty(), to.store.extend(to.store.empty(), Array<number>(20).fill(9)), 99).release();
        const empty = from.store.empty();
        const value = computed(empty, from.store.extend(empty, tokens));
        const refused = computed(value, from.store.extend(value, [29, 29, 29]), 50); // rows past the value's length
        const out = from.codec.export(value);
        assert.equal(out.tail.length, from.codec.tailBytes(tokens.length));
        const home = to.codec.reserve(Int32Array.from(tokens));
        home.fixed.set(out.fixed);
        home.pages.forEach((page, i) => page.set(out.pages[i]!.bytes));
        home.setTail(out.tail);
        refused.release();
        const copy = home.commit() as PagedState;
        assert.deepEqual(copy.snapshot(), value.snapshot());
        assert.deepEqual([...copy.tokens()], tokens);
        const grown = computed(value, from.store.extend(value, more));
        const grownCopy = computed(copy, to.store.extend(copy, more));
        assert.deepEqual(grownCopy.snapshot(), grown.snapshot());
        // Past its length a value that was read in has zeros, like one that was computed.
        const last = copy.pages.at(-1);
        if (last && tokens.length % PAGE_TOKENS > 0 && last.filled === tokens.length % PAGE_TOKENS) {
          assert.ok(last.slab.bytes.subarray(3 * (tokens.length % PAGE_TOKENS), 3 * PAGE_TOKENS).every((b) => b === 0));
        }
      },
    ),
    { numRuns: 200 },
  );
});

test('a page keeps its identity while it is shared, and gets another when a row of it is written again', () => {
  const { store, codec } = stores();
  const first = store.extend(store.empty(), [1, 2, 3]);
  const left = store.extend(first, [4, 5]);
  const [page] = codec.export(left).pages;
  const longer = store.extend(left, [6]);
  assert.equal(codec.export(longer).pages[0]!.identity, page!.identity, 'a longer value shares the page');
  longer.release();
  left.release();
  // Nobody holds the fourth token any more: it is written over in the page itself.
  const right = store.extend(first, [40, 50]);
  assert.equal(right.pages[0]!.slab, first.pages[0]!.slab);
  assert.notEqual(codec.export(right).pages[0]!.identity, page!.identity);
  const copied = store.extend(first, [41]);
  assert.notEqual(codec.export(copied).pages[0]!.identity, codec.export(right).pages[0]!.identity);
});

test('a reservation that is abandoned, or finds no memory, leaves nothing taken', () => {
  const { store, codec } = stores({ fixedSlabs: 2, pages: 3 });
  const before = store.usage().used;
  codec.reserve(new Int32Array(9)).abandon();
  assert.equal(store.usage().used, before);
  assert.throws(
    () => codec.reserve(new Int32Array(13)),
    (error: unknown) => error instanceof PlumblineError && error.code === 'out_of_memory',
  );
  assert.equal(store.usage().used, before);
  const home = codec.reserve(new Int32Array(9));
  home.commit().release();
  assert.throws(() => home.abandon(), /ended twice/);
  assert.equal(store.usage().used, before);
});

test('a state of another store is refused', () => {
  const here = stores();
  const there = stores();
  assert.throws(() => here.codec.export(there.store.empty()), /another store/);
});
