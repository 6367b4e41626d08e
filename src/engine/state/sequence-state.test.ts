import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../../errors.js';
import type { Backend, MemoryBlock } from '../backends/backend.js';
import { StateLayoutBuilder } from './layout.js';
import { StateStore, type PagedState } from './sequence-state.js';

const PAGE_TOKENS = 4;

/** Memory alone; a state never asks a backend for more. */
function memoryOnly(): Pick<Backend, 'allocate'> & { live(): number } {
  let live = 0;
  let next = 64;
  return {
    live: () => live,
    allocate(byteLength): MemoryBlock {
      live += byteLength;
      const address = next;
      next += byteLength + 64;
      return { address, bytes: new Uint8Array(byteLength), free: () => (live -= byteLength) };
    },
  };
}

function store(limit = 1 << 20) {
  const memory = memoryOnly();
  const layout = new StateLayoutBuilder(PAGE_TOKENS);
  layout.fixed('sum', 4);
  layout.page('rows', { groups: 2, tokensPerRow: 1, rowBytes: 1 });
  layout.page('pairs', { groups: 1, tokensPerRow: 2, rowBytes: 1 });
  return {
    memory,
    states: new StateStore(memory as unknown as Backend, layout.finish(), { fixedSlabs: limit, pages: limit }),
  };
}

/** What a plan would do: rows hold the token, pairs the sum of two, the fixed part the sum of all. */
function compute(before: PagedState, after: PagedState): PagedState {
  for (let position = before.length; position < after.length; position++) {
    const page = after.pages[Math.floor(position / PAGE_TOKENS)]!.slab.bytes;
    const at = position % PAGE_TOKENS;
    page[at] = after.token(position);
    page[PAGE_TOKENS + at] = 100 + after.token(position);
    if (at % 2 === 1) page[64 + (at >> 1)] = after.token(position) + after.token(position - 1);
  }
  after.fixed.bytes[0] = after.tokens().reduce((a, b) => a + b, 0) & 255;
  return after;
}

function assertHolds(state: PagedState, tokens: readonly number[]): void {
  const parts = state.snapshot();
  assert.deepEqual([...state.tokens()], [...tokens]);
  assert.equal(parts.get('sum')![0], tokens.reduce((a, b) => a + b, 0) & 255);
  assert.deepEqual([...parts.get('rows')!], [...tokens, ...tokens.map((t) => 100 + t)]);
  const pairs = Array.from({ length: tokens.length >> 1 }, (_, i) => tokens[2 * i]! + tokens[2 * i + 1]!);
  assert.deepEqual([...parts.get('pairs')!], pairs);
}

const command = fc.record({
  from: fc.nat(),
  tokens: fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 9 }),
  fails: fc.boolean(),
  releases: fc.option(fc.nat(), { nil: undefined }),
});

test('a value never changes, whatever grows from it, fails, or is released beside it', () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 30 }), (commands) => {
      const { states, memory } = store();
      const values: { state: PagedState; tokens: number[] }[] = [{ state: states.empty(), tokens: [] }];
      for (const { from, tokens, fails, releases } of commands) {
        const base = values[from % values.length]!;
        const grown = states.extend(base.state, tokens);
        if (fails) {
          // A refused draft: it has written into the pages already.
          compute(base.state, grown).release();
        } else {
          values.push({ state: compute(base.state, grown), tokens: [...base.tokens, ...tokens] });
        }
        if (releases !== undefined && values.length > 1) {
          const [gone] = values.splice(releases % values.length, 1);
          gone!.state.release();
        }
        for (const value of values) assertHolds(value.state, value.tokens);
      }
      for (const { state } of values) state.release();
      assert.equal(states.usage().used, 0);
      states.close();
      assert.equal(memory.live(), 0);
    }),
    { numRuns: 300 },
  );
});

test('two forks of one value in flight at once do not share the page they append to', () => {
  const { states } = store();
  const base = compute(states.empty(), states.extend(states.empty(), [1, 2, 3]));
  const left = states.extend(base, [10]);
  const right = states.extend(base, [20]);
  compute(base, left);
  compute(base, right);
  assertHolds(left, [1, 2, 3, 10]);
  assertHolds(right, [1, 2, 3, 20]);
  assertHolds(base, [1, 2, 3]);
});

test('a released value, a second release and a retain after release are refused', () => {
  const { states } = store();
  const state = states.empty();
  state.release();
  const internal = (error: unknown) => error instanceof PlumblineError && error.code === 'internal_error';
  assert.throws(() => states.extend(state, [1]), internal);
  assert.throws(() => state.release(), internal);
  assert.throws(() => state.retain(), internal);
});

test('at the memory limit extend throws out_of_memory with nothing taken, and works again after a release', () => {
  const { states } = store(20);
  const held: PagedState[] = [states.empty()];
  assert.throws(
    () => {
      for (;;) held.push(states.extend(held[held.length - 1]!, [1, 2, 3, 4, 5]));
    },
    (error: unknown) => error instanceof PlumblineError && error.code === 'out_of_memory',
  );
  const { used } = states.usage();
  assert.throws(() => states.extend(held[held.length - 1]!, [1, 2, 3, 4, 5]));
  assert.equal(states.usage().used, used);
  for (const state of held.splice(1)) state.release();
  states.extend(held[0]!, [1]).release();
});
