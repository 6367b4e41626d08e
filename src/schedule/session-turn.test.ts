import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { FakeLanguageModel, type FakeModelOptions } from '../../test/support/fake-language-model.js';
import { answerOf, idsOf, makeRequest, MarkSink, outcomeOf, samplerOf } from '../../test/support/scheduling.js';
import type { SequenceState } from '../engine/model.js';
import { Bank } from '../sessions/bank.js';
import { NO_FENCES } from '../sessions/fence-view.js';
import type { Capture, RestoreOutcome, StateStamp } from '../sessions/types.js';
import type { FinishReason, GenerationEvent, SessionReport } from './request.js';
import { Scheduler } from './scheduler.js';
import type { DiskStore } from './disk-store.js';
import { Sessions, type SessionsOptions } from './session-turn.js';

const STAMP = (lane: 'ar' | 'mtp'): StateStamp => ({
  ...{ family: 'fake', modelHash: '', activationLaw: 'f32', floatLaw: 'fma', engineLaw: '', layoutHash: '' },
  lane,
  draftHead: false,
});

function setUp(more: FakeModelOptions & Partial<SessionsOptions> & { readonly maxParallel?: number } = {}) {
  const model = new FakeLanguageModel(more);
  const bank = new Bank<SequenceState>(1 << 20, NO_FENCES);
  const sessions = new Sessions({ stamp: STAMP, laneOf: () => 'ar', fences: NO_FENCES, bank, ...more });
  const scheduler = new Scheduler({
    model,
    createSampler: (request) => samplerOf(request),
    sessions,
    maxParallel: more.maxParallel,
    prefillChunk: 4,
  });
  return { model, bank, sessions, scheduler };
}

const named = (id: string, stablePrefix?: number) => ({ id, source: 'header' as const, stablePrefix });
const finishOf = (events: readonly GenerationEvent[]) => events.find((event) => event.type === 'finish')!;
const reportOf = (events: readonly GenerationEvent[]): SessionReport =>
  (finishOf(events) as { usage: { session: SessionReport } }).usage.session;
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => 1 + (i % 60));

describe('what is kept', () => {
  test('a turn is told when its closing forward has passed, and kept with every token', async () => {
    const { model, bank, scheduler } = setUp();
    const { events } = await outcomeOf(
      scheduler.submit(makeRequest({ promptTokens: prompt(6), session: named('a', 5) })),
    );
    const tokens = [...prompt(6), ...idsOf(events)];
    assert.deepEqual(model.calls.at(-1)!.batch[0]!.history, tokens.slice(0, -1), 'the last forward closes');
    const kept = bank.entries().map(({ capture }) => [capture.kind, [...capture.tokens]]);
    assert.deepEqual(kept, [
      ['chunk', tokens.slice(0, 4)],
      ['prompt', tokens.slice(0, 5)],
      ['turn', tokens],
    ]);
    const { turnTokens, ...report } = reportOf(events);
    assert.deepEqual([...turnTokens!], tokens);
    assert.deepEqual(report, {
      ...{
        id: 'a',
        source: 'header',
        reusedTokens: 0,
        splicedTurns: 0,
        spliceDeclined: undefined,
        matchedBy: undefined,
        textDeclined: undefined,
      },
      restore: { kind: 'no-match', reason: 'no_entry' },
      stored: { ram: 'stored', disk: 'off' },
    });
    bank.clear();
    assert.equal(model.liveStates, 0);
  });

  test('a disk that may not be used yet is neither asked nor given anything, and both are told', async () => {
    const refuses = (): never => assert.fail('it was asked');
    const disk = {
      match: () => ({ kind: 'no-match', reason: 'no_entry' }),
      hold: refuses,
      restore: refuses,
      save: refuses,
    };
    const { scheduler } = setUp({ disk: disk as unknown as DiskStore, diskUsable: () => false });
    const { events } = await outcomeOf(
      scheduler.submit(makeRequest({ promptTokens: prompt(6), session: named('a', 5) })),
    );
    const { restore, stored } = reportOf(events);
    assert.deepEqual(
      [restore, stored],
      [
        { kind: 'no-match', reason: 'busy' },
        { ram: 'stored', disk: 'unusable' },
      ],
    );
  });

  test('a turn that a stop string cut, one that is cancelled, and one whose closing row is invalid are not kept as a whole', async () => {
    const cut = setUp();
    const stopId = idsOf((await outcomeOf(setUp().scheduler.submit(makeRequest()))).events)[1]!;
    const { events } = await outcomeOf(cut.scheduler.submit(makeRequest({ text: new MarkSink(stopId), maxTokens: 9 })));
    assert.equal(finishOf(events).type === 'finish' && (finishOf(events) as { reason: FinishReason }).reason, 'stop');
    assert.deepEqual(reportOf(events).stored, { ram: 'trimmed', disk: 'off' });

    const spoiled = setUp({ onRow: (row, history) => void (history.length === 3 + 4 && (row[0] = NaN)) });
    const failed = await outcomeOf(spoiled.scheduler.submit(makeRequest()));
    assert.equal(idsOf(failed.events).length, 4, 'all tokens were told');
    assert.equal((failed.error as { code: string }).code, 'non_finite_logits');
    assert.ok(failed.events.every(({ type }) => type !== 'finish'));

    const gone = setUp();
    for await (const event of gone.scheduler.submit(makeRequest())) if (event.type === 'token') break;
    await gone.scheduler.shutdown({ drainMs: 0 });
    for (const { bank, model } of [cut, spoiled, gone]) {
      assert.ok(bank.entries().every(({ capture }) => capture.kind !== 'turn'));
      bank.clear();
      assert.equal(model.liveStates, 0);
    }
  });
});

describe('what a turn begins with', () => {
  test('a later turn computes only what is new, and answers as a cold one', async () => {
    const { model, bank, scheduler } = setUp();
    const first = await outcomeOf(scheduler.submit(makeRequest({ promptTokens: prompt(6), session: named('a') })));
    const second = makeRequest({
      promptTokens: [...prompt(6), ...idsOf(first.events), 9, 8],
      session: named('a'),
    });
    const before = model.calls.length;
    const warm = await outcomeOf(scheduler.submit(second));
    assert.equal(model.calls[before]!.batch[0]!.history.length, 10);
    assert.deepEqual(reportOf(warm.events).restore, { kind: 'restored', from: 'ram' });
    assert.equal((finishOf(warm.events) as { usage: { cachedTokens: number } }).usage.cachedTokens, 10);
    const cold = await outcomeOf(setUp().scheduler.submit({ ...second, text: new MarkSink() }));
    assert.deepEqual(idsOf(warm.events), idsOf(cold.events));
    bank.clear();
    assert.equal(model.liveStates, 0);
  });

  test('a state is said to be found by its text only where all of the tokens that the text stands for were reused', async () => {
    const { scheduler } = setUp();
    await outcomeOf(scheduler.submit(makeRequest({ promptTokens: prompt(6), session: named('a') })));
    for (const [tokens, by] of [
      [5, 'text'],
      [8, 'tokens'],
    ] as const) {
      // prettier-ignore
      const session = { ...named('a'), prefix: { tokens, by: 'text' as const } };
      const request = makeRequest({ promptTokens: [...prompt(5), 40 + tokens, 9, 8, 7], session });
      const { events } = await outcomeOf(scheduler.submit(request));
      assert.deepEqual([reportOf(events).reusedTokens, reportOf(events).matchedBy], [5, by]);
    }
  });

  test('what another session computed is taken over with its lineage', async () => {
    const { bank, scheduler } = setUp();
    await outcomeOf(scheduler.submit(makeRequest({ promptTokens: prompt(6), session: named('a') })));
    await outcomeOf(scheduler.submit(makeRequest({ promptTokens: [...prompt(5), 7, 7], session: named('b') })));
    const turn = bank.entries().find(({ session, capture }) => session === 'b' && capture.kind === 'turn')!;
    assert.deepEqual(turn.lineage, [
      { session: 'a', epoch: 0 },
      { session: 'b', epoch: 0 },
    ]);
  });

  test('what a waiting request will begin with is not evicted', async () => {
    let open: () => void = () => undefined;
    const { bank, scheduler } = setUp({
      maxParallel: 1,
      onForward: ({ batch }) =>
        batch[0]!.tokens[0] === 50 ? new Promise<void>((resolve) => (open = resolve)) : undefined,
    });
    await outcomeOf(scheduler.submit(makeRequest({ promptTokens: prompt(6), session: named('a') })));
    const busy = outcomeOf(scheduler.submit(makeRequest({ promptTokens: [50, 51], session: named('busy') })));
    const waiting = scheduler.submit(makeRequest({ promptTokens: [...prompt(6), 4], session: named('a') }));
    const pins = (): number => bank.entries().filter((entry) => (entry as unknown as { pins: number }).pins > 0).length;
    assert.equal(pins(), 1);
    while (scheduler.stats().running === 0) await nextTurn();
    await nextTurn();
    open();
    await busy;
    await outcomeOf(waiting);
    assert.equal(pins(), 0);
  });
});

describe('a disk', () => {
  const capture = (model: FakeLanguageModel, tokens: readonly number[]): Promise<Capture<SequenceState>> =>
    model
      .forward([{ state: model.newState(), tokens, logits: 'none' }], { phase: 'prefill' })
      .then(([result]) => ({ kind: 'turn', tokens: Int32Array.from(tokens), trunk: result!.state }));

  /** A disk that has the first five tokens of `prompt(9)`, and gives them when it is told to. */
  function slowDisk(answer: () => Promise<RestoreOutcome<SequenceState>>): DiskStore & { held: number } {
    const candidate = { length: 5, session: 'a', kind: 'turn' as const, lineage: [{ session: 'a', epoch: 0 }] };
    const disk = {
      held: 0,
      match: (tokens: readonly number[]) =>
        tokens.length === 9
          ? { kind: 'candidate' as const, candidate }
          : { kind: 'no-match' as const, reason: 'no_entry' as const },
      hold: () => {
        disk.held++;
        return () => void disk.held--;
      },
      restore: answer,
      save: () => undefined,
    };
    return disk;
  }

  test('is read while others go on; what comes of it is told', async () => {
    let give: (outcome: RestoreOutcome<SequenceState>) => void = () => undefined;
    const disk = slowDisk(() => new Promise((resolve) => (give = resolve)));
    const { model, bank, scheduler } = setUp({ disk, maxParallel: 2 });
    const warm = outcomeOf(scheduler.submit(makeRequest({ promptTokens: prompt(9), session: named('a') })));
    await nextTurn();
    await nextTurn();
    const other = await outcomeOf(scheduler.submit(makeRequest({ session: named('other') })));
    assert.equal(idsOf(other.events).length, 4);
    assert.equal(scheduler.stats().prefilling, 1);
    give({ kind: 'restored', tokens: 5, from: 'disk', capture: await capture(model, prompt(5)) });
    const { events } = await warm;
    assert.deepEqual(reportOf(events).restore, { kind: 'restored', from: 'disk' });
    assert.equal(reportOf(events).reusedTokens, 5);
    assert.equal(disk.held, 0);
    bank.clear();
  });

  test('that rejects, has no memory or finds nothing leaves a cold turn with the reason; the answer is the same', async () => {
    const cold = await outcomeOf(setUp().scheduler.submit(makeRequest({ promptTokens: prompt(9) })));
    for (const outcome of [
      { kind: 'rejected', reason: 'checkpoint_damaged' },
      { kind: 'no-match', reason: 'no_entry' },
    ] as const) {
      const { scheduler } = setUp({ disk: slowDisk(async () => outcome) });
      const { events } = await outcomeOf(
        scheduler.submit(makeRequest({ promptTokens: prompt(9), session: named('a') })),
      );
      assert.deepEqual(reportOf(events).restore, outcome);
      assert.deepEqual(idsOf(events), idsOf(cold.events));
    }
  });
});

describe('an invalid row', () => {
  test('is told only when its session is contained; the states are gone before, and others go on meanwhile', async () => {
    let contained: () => void = () => undefined;
    let liveAtContain = -1;
    const { model, bank, scheduler } = setUp({
      maxParallel: 2,
      onRow: (row, history) => void (history[0] === 60 && history.length === 4 && row.fill(NaN)),
      contain: async ({ session, emittedTokens, error }) => {
        liveAtContain = model.liveStates - bank.entries().length;
        assert.deepEqual([session.id, emittedTokens, error.census.site], ['bad', 1, 'ar_step']);
        await new Promise<void>((resolve) => (contained = resolve));
      },
    });
    let told = false;
    const bad = outcomeOf(
      scheduler.submit(makeRequest({ promptTokens: [60, 6, 7], session: named('bad'), timeoutMs: 40 })),
    ).then((outcome) => {
      told = true;
      return outcome;
    });
    while (liveAtContain < 0) await nextTurn();
    const good = await outcomeOf(scheduler.submit(makeRequest({ session: named('good') })));
    assert.equal(idsOf(good.events).length, 4);
    await new Promise((resolve) => setTimeout(resolve, 80));
    assert.equal(told, false, 'not even the deadline tells');
    assert.equal(liveAtContain, 0);
    contained();
    const { error } = await bad;
    assert.equal((error as { code: string }).code, 'non_finite_logits');
    await scheduler.shutdown({ drainMs: 0 });
  });

  test('keeps a shutdown waiting until its session is contained', async () => {
    let contained: () => void = () => undefined;
    const { scheduler } = setUp({
      onRow: (row) => void row.fill(NaN),
      contain: () => new Promise<void>((resolve) => (contained = resolve)),
    });
    const bad = outcomeOf(scheduler.submit(makeRequest()));
    for (let i = 0; i < 20; i++) await nextTurn();
    let stopped = false;
    const stop = scheduler.shutdown({ drainMs: 0 }).then(() => (stopped = true));
    for (let i = 0; i < 20; i++) await nextTurn();
    assert.equal(stopped, false);
    contained();
    await stop;
    assert.equal(((await bad).error as { code: string }).code, 'non_finite_logits');
  });
});

test('without sessions nothing is closed and nothing reported', async () => {
  const model = new FakeLanguageModel();
  const scheduler = new Scheduler({ model, createSampler: (request) => samplerOf(request) });
  const outcome = await outcomeOf(scheduler.submit(makeRequest()));
  assert.equal(model.calls.length, 5, 'the prompt, its last token, three more');
  assert.equal(reportOf(outcome.events), undefined);
  assert.ok(answerOf(outcome));
});
