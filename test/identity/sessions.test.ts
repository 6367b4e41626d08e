/**
 * A warm turn is the turn that would have been had if nothing had ever been put away: going on from memory, from a disk,
 * and from a disk after a restart give the rows, the tokens and the states of going on without a break, byte for byte; where
 * no row depends on the phase it was made in, also those of a run that computes the whole history anew.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GatePolicy } from '../../src/engine/plan/phase.js';
import type { RandomHead } from '../support/planted-head.js';
import { openSessionModel, SessionRun } from '../support/session-runs.js';
import { assertWarmTurns, GREEDY, ids, same, SEEDED } from '../support/warm-turns.js';

const POLICIES: readonly GatePolicy[] = ['strict', 'mtplx', 'uniform'];
/** A page of the state holds so many tokens. */
const PAGE = 64;
const BOUNDARIES = [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1];

for (const gatePolicy of POLICIES) {
  for (const speculation of ['off', 'plain', 'coupled'] as const) {
    test(`embedded model, ${gatePolicy}, speculation ${speculation}: a turn goes on as if never put away`, async (t) => {
      for (const [i, boundary] of BOUNDARIES.entries()) {
        const sampling = i % 2 === 0 ? GREEDY : SEEDED;
        await assertWarmTurns(t, { checkpoint: 'plumbline-tiny', gatePolicy, dtype: 'bf16' }, boundary, {
          speculation,
          sampling,
        });
      }
      for (const sampling of [GREEDY, SEEDED]) {
        await assertWarmTurns(t, { checkpoint: 'plumbline-tiny', gatePolicy, dtype: 'f32' }, PAGE, {
          speculation,
          sampling,
        });
      }
    });
  }
}

for (const checkpoint of ['qwen4-exp-tiny', 'qwen4-exp-wide', 'qwen3.5-dense-tiny'] as const) {
  const heads: readonly (RandomHead | undefined)[] =
    checkpoint === 'qwen3.5-dense-tiny' ? [undefined] : [undefined, { seed: 3 }];
  for (const head of heads) {
    test(`${checkpoint}, ${head ? 'with a made-up draft head' : 'plain'}: a turn goes on as if never put away`, async (t) => {
      for (const gatePolicy of POLICIES) {
        for (const [i, boundary] of [PAGE - 1, PAGE, PAGE + 1].entries()) {
          const options = { checkpoint, head, gatePolicy, dtype: 'auto' };
          const sampling = i % 2 === 0 ? SEEDED : GREEDY;
          await assertWarmTurns(t, options, boundary, { speculation: head ? 'plain' : 'off', sampling });
        }
      }
    });
  }
}

test('a prompt that forks from another at any point is computed as if it were cold, in both lanes, and says what it reused', async (t) => {
  for (const gatePolicy of POLICIES) {
    const opened = await openSessionModel(t, { checkpoint: 'plumbline-tiny', gatePolicy, dtype: 'bf16' });
    const { vocabSize } = opened.model;
    const prompt = ids(150, 9, vocabSize);
    for (const speculation of ['off', 'plain'] as const) {
      for (const at of [1, 2, PAGE - 1, PAGE, PAGE + 1, 100, 2 * PAGE]) {
        const run = new SessionRun(opened, { ram: true });
        const how = { speculation, sampling: SEEDED, maxTokens: 6 };
        (await run.turn({ ...how, prompt, stablePrefix: at, session: 'parent' })).release();
        const fork = { ...how, prompt: [...prompt.slice(0, at), ...ids(30, at, vocabSize)] };
        const warm = await run.turn({ ...fork, session: 'child' });
        const plain = new SessionRun(opened);
        same(warm, await plain.turn({ ...fork, session: 'child' }), `${gatePolicy} ${speculation} fork at ${at}`);
        // Chunks of 48 are kept, too.
        assert.equal(warm.usage.cachedTokens, at, `${gatePolicy} ${speculation} fork at ${at}`);
        await run.close();
        await plain.close();
      }
    }
    assert.equal(opened.model.stateUsage().used, 0);
  }
});

test('a history that was edited is computed anew from the edit on', async (t) => {
  const opened = await openSessionModel(t, { checkpoint: 'plumbline-tiny', gatePolicy: 'uniform', dtype: 'bf16' });
  const { vocabSize } = opened.model;
  for (const speculation of ['off', 'plain'] as const) {
    const run = new SessionRun(opened, { ram: true });
    const plain = new SessionRun(opened);
    const how = { speculation, sampling: GREEDY, maxTokens: 7, session: 'one' };
    const first = await run.turn({ ...how, prompt: ids(70, 1, vocabSize) });
    const edited = [...first.end.tokens];
    edited[60] = edited[60] === 5 ? 6 : 5;
    const request = { ...how, prompt: [...edited, ...ids(5, 2, vocabSize)] };
    const warm = await run.turn(request);
    assert.equal(warm.usage.cachedTokens, 48, 'the chunk before the edit');
    same(warm, await plain.turn(request), `${speculation}: edited`);
    // Both branches are kept.
    const back = { ...how, prompt: [...first.end.tokens, ...ids(5, 3, vocabSize)] };
    const again = await run.turn(back);
    assert.equal(again.usage.cachedTokens, first.end.tokens.length);
    same(again, await plain.turn(back), `${speculation}: the first branch`);
    await run.close();
    await plain.close();
  }
});
