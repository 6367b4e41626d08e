/** Two turns of a session, the second one gone on to in every way that there is, and a cold run to compare it with. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { temporaryFolder } from './repository.js';
import {
  openSessionModel,
  SessionRun,
  type RunRequest,
  type SessionModelOptions,
  type TurnRecord,
} from './session-runs.js';

export const GREEDY = { temperature: 0 };
export const SEEDED = { temperature: 1.1, seed: 5n };

/** Ids of no meaning below `vocabSize`, the same for the same seed. */
export function ids(count: number, seed: number, vocabSize: number): number[] {
  let state = seed >>> 0;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 2 + ((state >>> 8) % (Math.min(vocabSize, 4000) - 2));
  });
}

type Continuation = 'ram' | 'disk' | 'restart';

/**
 * Two turns: the first ends with `boundary` tokens, prompt and `answer` of them; the second goes on from it in every way.
 */
export async function assertWarmTurns(
  t: TestContext,
  options: SessionModelOptions,
  boundary: number,
  how: Pick<RunRequest, 'speculation' | 'sampling'>,
  answer = 11,
): Promise<void> {
  const label = `${options.checkpoint} ${options.gatePolicy} ${how.speculation} T${how.sampling.temperature} at ${boundary}`;
  const folder = temporaryFolder(t, 'identity-sessions');
  const opened = await openSessionModel(t, options);
  const { vocabSize } = opened.model;
  const first: RunRequest = {
    ...how,
    prompt: ids(boundary - answer, boundary, vocabSize),
    maxTokens: answer,
    session: 'one',
  };

  const plain = new SessionRun(opened);
  const turn = await plain.turn(first);
  assert.equal(turn.end.tokens.length, boundary, label);
  const second: RunRequest = {
    ...how,
    prompt: [...turn.end.tokens, ...ids(9, 77, vocabSize)],
    maxTokens: 8,
    session: 'one',
  };
  const uninterrupted = await plain.goOn(turn, second);

  const ram = new SessionRun(opened, { ram: true });
  same(await ram.turn(first), turn, `${label}: the first turn`);
  const disk = new SessionRun(opened, { folder });
  same(await disk.turn(first), turn, `${label}: the first turn`);
  await disk.flush();
  const warm: Record<Continuation, TurnRecord> = {
    ram: await ram.turn(second),
    disk: await disk.turn(second),
    restart: await (async () => {
      await disk.close();
      const again = new SessionRun(await openSessionModel(t, options), { folder });
      const record = await again.turn(second);
      await again.close();
      return record;
    })(),
  };
  for (const [from, record] of Object.entries(warm)) {
    assert.equal(record.usage.cachedTokens, boundary, `${label}: tokens reused from ${from}`);
    assert.deepEqual(record.usage.session?.restore, { kind: 'restored', from: from === 'ram' ? 'ram' : 'disk' });
    same(record, uninterrupted, `${label}: ${from}`);
  }
  if (how.speculation === 'off' || options.gatePolicy === 'uniform') {
    const cold = await plain.turn(second);
    assert.equal(cold.usage.cachedTokens, 0);
    same(uninterrupted, cold, `${label}: a cold run`);
  }
  for (const record of [turn, uninterrupted]) record.release();
  await ram.close();
  await plain.close();
  assert.equal(opened.model.stateUsage().used, 0, `${label}: states given back`);
}

export function same(actual: TurnRecord, expected: TurnRecord, label: string): void {
  assert.deepEqual(actual.tokens, expected.tokens, `${label}: tokens`);
  assert.deepEqual(actual.rows, expected.rows, `${label}: rows of logits`);
  assert.deepEqual(actual.parts, expected.parts, `${label}: states`);
}
