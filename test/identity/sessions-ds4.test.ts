/**
 * What sessions.test.ts holds of its family is held of the families under the ds4 law: a turn that goes on from memory, from a
 * disk and from a disk after a restart is the turn of a run without a break and of a cold run, byte for byte, in every kind of
 * state: windows, compressed rows and their rings, index rows, recurrences, convolutions, pools and shared choices.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { DEEPSEEK_GOLDEN_CASES, GLM_GOLDEN_CASES } from '../support/golden.js';
import { openSessionModel, SessionRun } from '../support/session-runs.js';
import { assertWarmTurns, GREEDY, ids, same, SEEDED } from '../support/warm-turns.js';

/** Where something begins anew, and the lengths beside it. */
const around = (...lengths: number[]): number[] => lengths.flatMap((length) => [length - 1, length, length + 1]);

const CASES = [
  // Windows of 16 rows; compressed rows of 4 and of 16 tokens, the former overlapping; pages of 64 tokens.
  { checkpoint: 'deepseek-v4-strong', boundaries: around(4, 16, 64, 128) },
  { checkpoint: 'deepseek-v4-plain-rope', boundaries: around(64) },
  // Convolutions over 4 tokens; pools of 4 and of 8 tokens; pages of 64.
  { checkpoint: 'glm5-next-strong', boundaries: around(4, 64) },
  { checkpoint: 'glm5-next-shared-index', boundaries: around(8, 64) },
] as const;

const common = { gatePolicy: 'strict', dtype: 'auto' } as const;
const PLAIN = { speculation: 'off', sampling: SEEDED } as const;

for (const { checkpoint, boundaries } of CASES) {
  test(`${checkpoint}: a turn goes on as if never put away, at the ends of windows, rows, pools and pages`, async (t) => {
    for (const [i, boundary] of boundaries.entries()) {
      const sampling = i % 2 === 0 ? SEEDED : GREEDY;
      const answer = Math.min(11, boundary - 1);
      await assertWarmTurns(t, { checkpoint, ...common }, boundary, { speculation: 'off', sampling }, answer);
    }
  });
}

for (const checkpoint of ['deepseek-v4-strong', 'glm5-next-shared-index'] as const) {
  test(`${checkpoint}: any fork, in any chunks, alone or beside others, is computed as if it were cold`, async (t) => {
    const opened = await openSessionModel(t, { checkpoint, ...common });
    const { vocabSize } = opened.model;
    const length = fc.integer({ min: 1, max: 140 });
    const chunk = fc.constantFrom(1, 3, 7, 16, 48, 64);
    const property = fc.asyncProperty(length, length, chunk, chunk, async (shared, more, before, now) => {
      const plain = new SessionRun(opened, { chunk: 64 });
      const run = new SessionRun(opened, { ram: true, chunk: before });
      const prompt = ids(shared + 10, shared, vocabSize);
      const parent = { ...PLAIN, maxTokens: 3, session: 'parent', prompt, stablePrefix: shared };
      const parentTurn = await run.turn(parent);
      same(parentTurn, await plain.turn(parent), 'the first turn');
      const child = (session: string, from: readonly number[], seed: number) => ({
        ...{ ...PLAIN, maxTokens: 5, session },
        prompt: [...from, ...ids(Math.min(more, 60), seed, vocabSize)],
      });
      const children = [
        child('fork', prompt.slice(0, shared), 31),
        child('turn', [...parentTurn.end.tokens], 32),
        child('stranger', [], 33),
      ];
      const warm = await run.inChunksOf(now).turns(children);
      for (const [i, request] of children.entries()) {
        same(
          warm[i]!,
          await plain.turn(request),
          `${request.session}: ${shared} tokens shared, chunks of ${before}, ${now}`,
        );
      }
      assert.ok(warm[0]!.usage.cachedTokens >= shared);
      assert.equal(warm[1]!.usage.cachedTokens, parentTurn.end.tokens.length);
      await run.close();
      await plain.close();
      assert.equal(opened.model.stateUsage().used, 0);
    });
    await fc.assert(property, { numRuns: 12 });
  });

  test(`${checkpoint}: a history that was edited is computed anew from the edit on, and both branches stay`, async (t) => {
    const opened = await openSessionModel(t, { checkpoint, ...common });
    const { vocabSize } = opened.model;
    const run = new SessionRun(opened, { ram: true, chunk: 16 });
    const plain = new SessionRun(opened);
    const how = { ...PLAIN, maxTokens: 7, session: 'one' };
    const first = await run.turn({ ...how, prompt: ids(70, 1, vocabSize) });
    const kept = (first.end.trunk as PagedState).snapshot();
    for (const edit of [1, 15, 16, 17, 63, 64, 65]) {
      const edited = [...first.end.tokens];
      edited[edit] = edited[edit] === 5 ? 6 : 5;
      const request = { ...how, prompt: [...edited, ...ids(5, 2, vocabSize)] };
      const warm = await run.turn(request);
      assert.equal(warm.usage.cachedTokens, edit - (edit % 16), `the chunks before the edit at ${edit}`);
      same(warm, await plain.turn(request), `edited at ${edit}`);
    }
    const back = { ...how, prompt: [...first.end.tokens, ...ids(5, 3, vocabSize)] };
    const again = await run.turn(back);
    assert.equal(again.usage.cachedTokens, first.end.tokens.length);
    same(again, await plain.turn(back), 'the first branch');
    assert.deepEqual((first.end.trunk as PagedState).snapshot(), kept, 'what was kept is what it was');
    await run.close();
    await plain.close();
  });
}

test('stamps of all models differ, and so do those of float laws', async (t) => {
  const stamps = new Set<string>();
  const cases = [...DEEPSEEK_GOLDEN_CASES, ...GLM_GOLDEN_CASES, 'qwen4-exp-tiny'] as const;
  for (const checkpoint of cases) {
    const { model } = await openSessionModel(t, { checkpoint, ...common });
    const stamp = model.stateIdentity!.stamp('ar');
    if (checkpoint !== 'qwen4-exp-tiny') assert.deepEqual([stamp.gatePolicy, stamp.draftHead], [undefined, false]);
    stamps.add(JSON.stringify(stamp));
    stamps.add(JSON.stringify({ ...stamp, floatLaw: 'another' }));
  }
  assert.equal(stamps.size, 2 * cases.length);
});
