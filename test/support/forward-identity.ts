/**
 * The same tokens give the same bytes: any chunking, one thread or two, alone or among strangers, on every backend that
 * serves. Logits of every row and the whole state are compared, byte for byte. The tests of one family's checkpoints.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { LanguageModel } from '../../src/engine/model.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { openPagedTestModel, type Checkpoint } from './models.js';

/** Long enough to pass a page boundary, several blocks and windows, and the budgets of the tiny models. */
const TOKENS = 150;

export const bytesOf = (row: Float32Array): Buffer => Buffer.from(row.buffer, row.byteOffset, row.byteLength);

export interface Run {
  readonly logits: Buffer;
  readonly state: ReadonlyMap<string, Uint8Array>;
}

/** Forwards `tokens` in pieces, all rows wanted. */
export async function run(model: LanguageModel, tokens: readonly number[], pieces: readonly number[]): Promise<Run> {
  let state = model.newState();
  const logits: Buffer[] = [];
  let at = 0;
  for (const size of pieces) {
    const [result] = await model.forward([{ state, tokens: tokens.slice(at, at + size), logits: 'all' }], {
      phase: 'prefill',
    });
    state.release();
    state = result!.state;
    logits.push(...result!.logits.map(bytesOf));
    at += size;
  }
  assert.equal(at, tokens.length);
  const snapshot = (state as PagedState).snapshot();
  state.release();
  return { logits: Buffer.concat(logits), state: snapshot };
}

export function assertSame(actual: Run, expected: Run): void {
  assert.ok(actual.logits.equals(expected.logits), 'logits differ');
  assertSameState(actual.state, expected.state);
}

function assertSameState(actual: Run['state'], expected: Run['state']): void {
  assert.deepEqual([...actual.keys()], [...expected.keys()]);
  for (const [part, bytes] of expected) assert.ok(Buffer.compare(actual.get(part)!, bytes) === 0, part);
}

/** Sizes that add up to `total`. */
export const pieces = (total: number): fc.Arbitrary<number[]> =>
  fc
    .array(fc.oneof(fc.constant(1), fc.integer({ min: 2, max: 70 })), { minLength: 1, maxLength: total })
    .map((sizes) => {
      const cut: number[] = [];
      let left = total;
      for (const size of sizes) {
        if (left === 0) break;
        cut.push(Math.min(size, left));
        left -= Math.min(size, left);
      }
      return left > 0 ? [...cut, left] : cut;
    });

export const tokensOf = (seed: number, vocabSize: number, count: number): number[] => {
  let state = seed >>> 0;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % vocabSize;
  });
};

export interface IdentityOptions {
  readonly checkpoints: readonly Checkpoint[];
  readonly dtypes: readonly string[];
  /** The law in which threads and neighbours are tried. */
  readonly dtype: string;
}

export function forwardIdentityTests({ checkpoints, dtypes, dtype }: IdentityOptions): void {
  for (const backend of ['cpu', 'wasm'] as const) {
    for (const checkpoint of checkpoints) {
      test(`${backend}: any chunking of ${checkpoint} gives the same logits and state`, async (t) => {
        for (const law of dtypes) {
          const { model } = await openPagedTestModel(t, checkpoint, { backend, dtype: law });
          const tokens = tokensOf(7, model.vocabSize, TOKENS);
          const whole = await run(model, tokens, [TOKENS]);
          await fc.assert(
            fc.asyncProperty(pieces(TOKENS), async (sizes) => {
              assertSame(await run(model, tokens, sizes), whole);
            }),
            { numRuns: backend === 'cpu' ? 12 : 3 },
          );
        }
      });
    }

    test(`${backend}: one thread and two give the same logits and state`, async (t) => {
      for (const checkpoint of checkpoints) {
        const runs: Run[] = [];
        for (const threads of [1, 2]) {
          const { model } = await openPagedTestModel(t, checkpoint, { backend, threads, dtype });
          const tokens = tokensOf(11, model.vocabSize, TOKENS);
          runs.push(await run(model, tokens, [100, 1, 1, TOKENS - 102]));
        }
        assertSame(runs[1]!, runs[0]!);
      }
    });

    test(`${backend}: a sequence among seven others gives what it gives alone`, async (t) => {
      for (const checkpoint of checkpoints) {
        const { model } = await openPagedTestModel(t, checkpoint, { backend, dtype });
        const sequences = Array.from({ length: 8 }, (_, i) => tokensOf(100 + i, model.vocabSize, 20 + 9 * i));
        const alone: Run[] = [];
        for (const tokens of sequences) alone.push(await run(model, tokens, [tokens.length]));
        let states = sequences.map(() => model.newState());
        const logits: Buffer[][] = sequences.map(() => []);
        // Uneven pieces, so that prompts, single steps and ended sequences meet in one call.
        for (let at = 0; at < 100; at += 13) {
          const live = sequences.flatMap((tokens, i) => (at < tokens.length ? [i] : []));
          if (live.length === 0) break;
          const results = await model.forward(
            live.map((i) => ({ state: states[i]!, tokens: sequences[i]!.slice(at, at + 13), logits: 'all' as const })),
            { phase: 'prefill' },
          );
          states = states.map((state, i) => {
            const result = results[live.indexOf(i)];
            if (!result) return state;
            state.release();
            logits[i]!.push(...result.logits.map(bytesOf));
            return result.state;
          });
        }
        states.forEach((state, i) => {
          assertSame({ logits: Buffer.concat(logits[i]!), state: (state as PagedState).snapshot() }, alone[i]!);
          state.release();
        });
        assert.equal(model.stateUsage().used, 0);
      }
    });
  }
}

/** Values of a run are kept, forked and gone on from: none of them changes, and each gives what a fresh run gives. */
export function forkIdentityTests({ checkpoints, dtype }: Pick<IdentityOptions, 'checkpoints' | 'dtype'>): void {
  for (const backend of ['cpu', 'wasm'] as const) {
    test(`${backend}: a value stays what it is while others grow from it, and gives what a fresh run gives`, async (t) => {
      for (const checkpoint of checkpoints) {
        const { model } = await openPagedTestModel(t, checkpoint, { backend, dtype, sequences: 24 });
        const tokens = tokensOf(21, model.vocabSize, TOKENS);
        const cuts = [1, 2, 15, 16, 17, 60, 64, 65, 128, TOKENS];
        const kept: { readonly state: PagedState; readonly snapshot: ReadonlyMap<string, Uint8Array> }[] = [];
        let state = model.newState() as PagedState;
        for (const cut of cuts) {
          const [result] = await model.forward([{ state, tokens: tokens.slice(state.length, cut), logits: 'none' }], {
            phase: 'prefill',
          });
          kept.push({ state, snapshot: state.snapshot() });
          state = result!.state as PagedState;
        }
        state.release();
        for (const { state: from } of kept) {
          const others = tokensOf(500 + from.length, model.vocabSize, 40);
          const fork = await model.forward([{ state: from.retain(), tokens: others, logits: 'all' }], {
            phase: 'prefill',
          });
          const [{ state: grown, logits }] = fork as [(typeof fork)[number]];
          const fresh = await run(model, [...tokens.slice(0, from.length), ...others], [from.length + others.length]);
          const rows = Buffer.concat(logits.map(bytesOf));
          assert.ok(rows.equals(fresh.logits.subarray(-rows.length)), `logits behind ${from.length} tokens`);
          assertSameState((grown as PagedState).snapshot(), fresh.state);
          grown.release();
          from.release();
        }
        for (const { state: old, snapshot } of kept) {
          assertSameState(old.snapshot(), snapshot);
          old.release();
        }
        assert.equal(model.stateUsage().used, 0);
      }
    });
  }
}
