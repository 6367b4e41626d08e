/**
 * Taking a window back: after any partial acceptance the state is, byte for byte, that of an engine which only ever saw
 * the kept tokens, and rows of a window do not depend on its width.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { SequenceState } from '../../src/engine/model.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import type { QwenModel } from '../../src/families/qwen/model.js';
import { openTestModel, type QwenCheckpoint } from '../support/models.js';

const CHECKPOINTS: readonly QwenCheckpoint[] = [
  'qwen4-exp-tiny',
  'qwen4-exp-wide',
  'qwen3.5-dense-tiny',
  'plumbline-tiny',
];

function assertSameState(actual: SequenceState, expected: SequenceState, label: string): void {
  assert.equal(actual.length, expected.length);
  const parts = (actual as PagedState).snapshot();
  for (const [part, bytes] of (expected as PagedState).snapshot()) {
    assert.ok(Buffer.compare(parts.get(part)!, bytes) === 0, `${label}: ${part}`);
  }
  assert.deepEqual((actual as PagedState).tokens(), (expected as PagedState).tokens());
}

/** One window: how many tokens are verified, how many of them stay. */
const windows = fc.array(
  fc
    .integer({ min: 1, max: 25 })
    .chain((size) => fc.record({ size: fc.constant(size), keep: fc.integer({ min: 1, max: size }) })),
  { minLength: 1, maxLength: 9 },
);

async function verifyWindow(model: QwenModel, state: SequenceState, tokens: readonly number[], keep: number) {
  const [result] = await model.forward([{ state, tokens, logits: 'all', hidden: 'all', revocable: true }], {
    phase: 'verify',
  });
  const { state: after, window, logits, hidden } = result!;
  if (keep === tokens.length) return { state: after, logits, hidden: hidden! };
  const [kept] = await model.speculation.commit([{ before: state, after, window: window!, keep }], {});
  after.release();
  return { state: kept!, logits, hidden: hidden! };
}

for (const checkpoint of CHECKPOINTS) {
  for (const [dtype, gatePolicy] of [
    ['f32', 'uniform'],
    ['bf16', 'strict'],
    ['bf16-mtplx', 'mtplx'],
  ] as const) {
    test(`${checkpoint} ${dtype} ${gatePolicy}: windows cut anywhere leave the state of their kept tokens`, async (t) => {
      const { model } = await openTestModel(t, checkpoint, { dtype, gatePolicy });
      await fc.assert(
        fc.asyncProperty(windows, fc.nat(), async (script, seed) => {
          let random = seed >>> 0;
          const token = (): number => {
            random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
            return (random >>> 8) % model.vocabSize;
          };
          let speculated = model.newState();
          let plain = model.newState();
          for (const { size, keep } of script) {
            const tokens = Array.from({ length: size }, token);
            const windowed = await verifyWindow(model, speculated, tokens, keep);
            // The engine that never saw the refused tokens: one token a forward, in the same phase.
            for (let i = 0; i < keep; i++) {
              const [step] = await model.forward(
                [{ state: plain, tokens: [tokens[i]!], logits: 'all', hidden: 'all' }],
                {
                  phase: 'verify',
                },
              );
              plain.release();
              plain = step!.state;
              assert.deepEqual(windowed.logits[i], step!.logits[0], `row ${i} of a window of ${size}`);
              assert.deepEqual(windowed.hidden[i], step!.hidden![0]);
            }
            speculated.release();
            speculated = windowed.state;
            assertSameState(speculated, plain, `kept ${keep} of ${size}`);
          }
          speculated.release();
          plain.release();
          assert.equal(model.stateUsage().used, 0);
        }),
        { numRuns: 8 },
      );
    });
  }
}

test('the value that a window grew from is unchanged, also while forks of it grow elsewhere', async (t) => {
  const { model } = await openTestModel(t, 'qwen4-exp-tiny');
  const [base] = await model.forward([{ state: model.newState(), tokens: [5, 6, 7, 8, 9], logits: 'none' }], {
    phase: 'prefill',
  });
  const before = (base!.state as PagedState).snapshot();
  const left = await verifyWindow(model, base!.state, [20, 21, 22, 23], 2);
  const right = await verifyWindow(model, base!.state, [30, 31, 32, 33], 3);
  const leftAlone = await verifyWindow(model, base!.state, [20, 21, 40, 41], 2);
  assertSameState(left.state, leftAlone.state, 'left');
  assert.notDeepEqual((right.state as PagedState).tokens(), (left.state as PagedState).tokens());
  for (const [part, bytes] of before) {
    assert.ok(Buffer.compare((base!.state as PagedState).snapshot().get(part)!, bytes) === 0, part);
  }
});
