/**
 * The same tokens give the same bytes: any chunking, one thread or two, alone or among strangers, on every backend that
 * serves. Logits of every row and the whole state are compared, byte for byte.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { LanguageModel } from '../../src/engine/model.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { openTestModel, type Checkpoint } from '../support/models.js';

const CHECKPOINTS: readonly Checkpoint[] = ['qwen4-exp-tiny', 'qwen4-exp-wide', 'qwen3.5-dense-tiny', 'plumbline-tiny'];
const DTYPES = ['f32', 'bf16', 'bf16-mtplx'] as const;
/** Long enough to pass a page boundary, several index blocks and the budget of the tiny models. */
const TOKENS = 150;

const bytesOf = (row: Float32Array): Buffer => Buffer.from(row.buffer, row.byteOffset, row.byteLength);

interface Run {
  readonly logits: Buffer;
  readonly state: ReadonlyMap<string, Uint8Array>;
}

/** Forwards `tokens` in pieces, all rows wanted. */
async function run(model: LanguageModel, tokens: readonly number[], pieces: readonly number[]): Promise<Run> {
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

function assertSame(actual: Run, expected: Run): void {
  assert.ok(actual.logits.equals(expected.logits), 'logits differ');
  assert.deepEqual([...actual.state.keys()], [...expected.state.keys()]);
  for (const [part, bytes] of expected.state) assert.ok(Buffer.compare(actual.state.get(part)!, bytes) === 0, part);
}

/** Sizes that add up to `total`. */
const pieces = (total: number): fc.Arbitrary<number[]> =>
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

const tokensOf = (seed: number, vocabSize: number, count = TOKENS): number[] => {
  let state = seed >>> 0;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % vocabSize;
  });
};

for (const backend of ['cpu', 'wasm'] as const) {
  for (const checkpoint of CHECKPOINTS) {
    test(`${backend}: any chunking of ${checkpoint} gives the same logits and state`, async (t) => {
      for (const dtype of DTYPES) {
        const { model } = await openTestModel(t, checkpoint, { backend, dtype });
        const tokens = tokensOf(7, model.vocabSize);
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
    for (const checkpoint of CHECKPOINTS) {
      const runs: Run[] = [];
      for (const threads of [1, 2]) {
        const { model } = await openTestModel(t, checkpoint, { backend, threads, dtype: 'bf16' });
        const tokens = tokensOf(11, model.vocabSize);
        runs.push(await run(model, tokens, [100, 1, 1, TOKENS - 102]));
      }
      assertSame(runs[1]!, runs[0]!);
    }
  });

  test(`${backend}: a sequence among seven others gives what it gives alone`, async (t) => {
    for (const checkpoint of CHECKPOINTS) {
      const { model } = await openTestModel(t, checkpoint, { backend, dtype: 'bf16' });
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
