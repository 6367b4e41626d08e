import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { PlumblineError } from '../errors.js';
import { FakeLanguageModel, type FakeModelOptions } from '../../test/support/fake-language-model.js';
import {
  answerOf,
  idsOf,
  makeRequest,
  MarkSink,
  outcomeOf,
  samplerOf,
  textOf,
  type Outcome,
} from '../../test/support/scheduling.js';
import { Scheduler, type SchedulerOptions } from './scheduler.js';
import type { GenerationEvent, GenerationRequest } from './request.js';

function setUp(options: Partial<SchedulerOptions> & FakeModelOptions = {}) {
  const model = new FakeLanguageModel(options);
  const scheduler = new Scheduler({ model, createSampler: (request) => samplerOf(request), ...options });
  return { model, scheduler };
}

/** Sum over all states of the table; holds at any time. */
function assertStatsAddUp(scheduler: Scheduler): void {
  const { totals, queued, running, prefilling, decoding } = scheduler.stats();
  assert.equal(totals.submitted, totals.finished + totals.failed + totals.cancelled + queued + running);
  assert.equal(running, prefilling + decoding);
}

/** A gate for forwards: `open` lets the waiting one through. */
function gate() {
  const waiting: (() => void)[] = [];
  return {
    wait: () => new Promise<void>((resolve) => waiting.push(resolve)),
    open: () => waiting.splice(0).forEach((resolve) => resolve()),
    count: () => waiting.length,
  };
}

async function until(condition: () => boolean): Promise<void> {
  for (let turns = 0; !condition(); turns++) {
    assert.ok(turns < 10_000, 'waited in vain');
    await nextTurn();
  }
}

const code = ({ error }: Outcome) => (error instanceof PlumblineError ? error.code : error);

describe('one request', () => {
  test('gives prefill, tokens and one finish', async () => {
    let now = 100;
    const { model, scheduler } = setUp({ prefillChunk: 2, now: () => (now += 5) });
    const { events } = await outcomeOf(
      scheduler.submit(makeRequest({ promptTokens: [1, 2, 3, 4, 5, 6], maxTokens: 3 })),
    );
    const tokens = idsOf(events);
    assert.equal(tokens.length, 3);
    assert.deepEqual(events.filter((event) => event.type === 'prefill').at(-1), {
      type: 'prefill',
      processed: 6,
      total: 6,
    });
    assert.equal(textOf(events), tokens.map((id) => `<${id}>`).join(''));
    assert.deepEqual(events.at(-1), {
      type: 'finish',
      reason: 'length',
      stopMatch: undefined,
      text: `<${tokens[2]}>`,
      usage: { promptTokens: 6, completionTokens: 3, cachedTokens: 0, prefillMs: 5, decodeMs: 5, seed: 7n },
    });
    assert.equal(model.liveStates, 0);
  });

  test('a stop token is counted, not shown, and not pushed into the sink', async () => {
    const [a, b] = idsOf((await outcomeOf(setUp().scheduler.submit(makeRequest()))).events);
    assert.ok(a !== undefined && b !== undefined);
    const { events } = await outcomeOf(setUp().scheduler.submit(makeRequest({ stopTokenIds: [b] })));
    assert.deepEqual(idsOf(events), [a]);
    assert.equal(textOf(events), `<${a}>`);
    const finish = events.at(-1);
    assert.ok(finish?.type === 'finish');
    assert.deepEqual([finish.reason, finish.stopMatch, finish.usage.completionTokens], ['stop', b, 2]);
  });

  test('a stop string ends it with the token that completes it', async () => {
    const [a, b] = idsOf((await outcomeOf(setUp().scheduler.submit(makeRequest()))).events);
    const { model, scheduler } = setUp();
    const { events } = await outcomeOf(scheduler.submit(makeRequest({ text: new MarkSink(b) })));
    assert.deepEqual(idsOf(events), [a, b]);
    assert.equal(textOf(events), `<${a}>`);
    const finish = events.at(-1);
    assert.ok(finish?.type === 'finish');
    assert.deepEqual([finish.reason, finish.stopMatch], ['stop', `<${b}>`]);
    assert.equal(model.calls.length, 3);
    assert.equal(model.liveStates, 0);
  });

  test('a stop string that the end completes makes the reason stop', async () => {
    const text = { push: () => ({ text: '' }), flush: () => ({ text: 'x', stop: '\ufffd' }) };
    const { events } = await outcomeOf(setUp().scheduler.submit(makeRequest({ text })));
    const finish = events.at(-1);
    assert.ok(finish?.type === 'finish');
    assert.deepEqual([finish.reason, finish.stopMatch, finish.text], ['stop', '\ufffd', 'x']);
  });

  test('a guide that calls the answer complete ends it with that token', async () => {
    const { model, scheduler } = setUp();
    const guide = { forcesGreedy: false, push: () => undefined, completedAt: 2 };
    const { events } = await outcomeOf(scheduler.submit(makeRequest({ guide })));
    const finish = events.at(-1);
    assert.ok(finish?.type === 'finish');
    assert.deepEqual([finish.reason, finish.stopMatch, finish.usage.completionTokens], ['stop', undefined, 2]);
    assert.equal(model.liveStates, 0);
  });

  test('log-probabilities are handed through', async () => {
    const { events } = await outcomeOf(setUp().scheduler.submit(makeRequest({ topLogprobs: 2 })));
    const first = events.find((event) => event.type === 'token');
    assert.equal(first?.logprob?.tokenId, first?.tokenId);
    assert.equal(first?.topLogprobs?.length, 2);
  });
});

describe('batching', () => {
  const someRequest = fc.record({
    promptTokens: fc.array(fc.nat(63), { minLength: 1, maxLength: 12 }),
    maxTokens: fc.integer({ min: 1, max: 8 }),
    temperature: fc.constantFrom(0, 0.8),
    seed: fc.bigInt(0n, 2n ** 64n - 1n),
    stopTokenIds: fc.array(fc.nat(63), { maxLength: 3 }),
    /** The history length at which this request's row is spoiled; beyond the end: never. */
    spoiledAt: fc.integer({ min: 1, max: 40 }),
    /** Turns of the event loop before it is submitted. */
    delay: fc.nat(12),
  });

  test('changes nothing: every request gets what it gets alone, also beside failing ones', async () => {
    const plan = fc.tuple(
      fc.array(someRequest, { minLength: 1, maxLength: 7 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 6 }),
    );
    await fc.assert(
      fc.asyncProperty(plan, async ([specs, maxParallel, prefillChunk]) => {
        // A request is told apart by its first prompt token, so that its rows can be spoiled alone and in a batch.
        const onRow = (row: Float32Array, history: readonly number[]) => {
          if (specs[history[0]!]?.spoiledAt === history.length) row[3] = NaN;
        };
        const requestOf = (index: number): GenerationRequest => {
          const { promptTokens, maxTokens, temperature, seed, stopTokenIds } = specs[index]!;
          return makeRequest({
            promptTokens: [index, ...promptTokens],
            maxTokens,
            sampling: { temperature, seed },
            stopTokenIds,
          });
        };
        const { model, scheduler } = setUp({ onRow, maxParallel, prefillChunk });
        const together = await Promise.all(
          specs.map(async ({ delay }, index) => {
            for (let turn = 0; turn < delay; turn++) await nextTurn();
            assertStatsAddUp(scheduler);
            return outcomeOf(scheduler.submit(requestOf(index)));
          }),
        );
        await until(() => scheduler.stats().running === 0);
        assert.equal(model.liveStates, 0);
        assertStatsAddUp(scheduler);
        assert.ok(model.calls.every((call) => call.batch.length <= maxParallel));
        for (const [index, outcome] of together.entries()) {
          const alone = setUp({ onRow });
          assert.deepEqual(answerOf(outcome), answerOf(await outcomeOf(alone.scheduler.submit(requestOf(index)))));
        }
      }),
      { numRuns: 60 },
    );
  });

  test('decodes all running requests in one forward', async () => {
    const { model, scheduler } = setUp({ maxParallel: 3 });
    await Promise.all(
      [1, 2, 3].map((first) => outcomeOf(scheduler.submit(makeRequest({ promptTokens: [first], maxTokens: 5 })))),
    );
    assert.deepEqual(Math.max(...model.calls.map((call) => call.batch.length)), 3);
    assert.ok(model.calls.every((call) => call.batch.length === 1 || call.phase === 'decode'));
  });

  test('after each prompt chunk the others get one decode step, and prompts take turns', async () => {
    const { model, scheduler } = setUp({ maxParallel: 3, prefillChunk: 2 });
    const first = outcomeOf(scheduler.submit(makeRequest({ promptTokens: [1], maxTokens: 12 })));
    await until(() => scheduler.stats().decoding === 1);
    model.calls.length = 0;
    const others = [2, 3].map((id) =>
      outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id, 9, 9, 9, 9], maxTokens: 1 }))),
    );
    await Promise.all([first, ...others]);
    const pattern = model.calls.map(
      ({ phase, batch }) => `${phase} ${batch.map(({ history, tokens }) => history[0] ?? tokens[0]).join(',')}`,
    );
    // Two chunks and the last token of each prompt, in turns, each followed by a step of the first request.
    const from = pattern.findIndex((call) => call.startsWith('prefill'));
    assert.deepEqual(
      pattern.slice(from, from + 12),
      [2, 3, 2, 3, 2, 3].flatMap((id) => [`prefill ${id}`, 'decode 1']),
    );
  });

  test('the event loop runs between forwards', async () => {
    const { model, scheduler } = setUp();
    let timers = 0;
    const interval = setInterval(() => timers++, 0);
    await outcomeOf(scheduler.submit(makeRequest({ maxTokens: 500 })));
    clearInterval(interval);
    assert.ok(timers > 0);
    assert.equal(model.liveStates, 0);
  });
});

describe('admission', () => {
  test('is first come, first served, and refuses beyond the limits', async () => {
    const { model, scheduler } = setUp({ maxParallel: 1, maxQueue: 2 });
    const running = [1, 2, 3].map((id) => outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id] }))));
    assert.throws(() => scheduler.submit(makeRequest()), { code: 'queue_full' });
    assert.deepEqual(scheduler.stats().refusals, { queue_full: 1 });
    await Promise.all(running);
    const order = model.calls.filter((call) => call.phase === 'prefill').map((call) => call.batch[0]?.tokens[0]);
    assert.deepEqual(order, [1, 2, 3]);
    assert.equal(code(await outcomeOf(scheduler.submit(makeRequest()))), undefined);
  });

  test('without a queue a free place is still taken', async () => {
    const { scheduler } = setUp({ maxQueue: 0 });
    const running = outcomeOf(scheduler.submit(makeRequest()));
    assert.throws(() => scheduler.submit(makeRequest()), { code: 'queue_full' });
    await running;
  });

  test('refuses what cannot run, before it is queued', () => {
    const { scheduler } = setUp({
      contextLength: 10,
      createSampler: () => {
        throw new PlumblineError('invalid_request', 'no such temperature');
      },
    });
    const refused = (more: Partial<GenerationRequest>, expected: string, message: RegExp) =>
      assert.throws(() => scheduler.submit(makeRequest(more)), { code: expected, message });
    refused({ promptTokens: [] }, 'invalid_request', /no tokens/);
    refused({ promptTokens: [1, 64] }, 'invalid_request', /the id 64/);
    refused({ promptTokens: [-1] }, 'invalid_request', /the id -1/);
    refused({ promptTokens: [0.5] }, 'invalid_request', /the id 0\.5/);
    refused({ maxTokens: 0 }, 'invalid_request', /at least one token/);
    refused({ maxTokens: 8 }, 'context_length_exceeded', /prompt of 3 tokens and 8 more/);
    refused({ maxTokens: 7 }, 'invalid_request', /no such temperature/);
    assert.deepEqual(scheduler.stats().refusals, { invalid_request: 6, context_length_exceeded: 1 });
    assert.equal(scheduler.stats().totals.submitted, 0);
  });

  test('options out of range are refused', () => {
    for (const wrong of [{ maxParallel: 0 }, { maxQueue: -1 }, { prefillChunk: 0 }, { maxParallel: 1.5 }])
      assert.throws(() => setUp(wrong), { code: 'invalid_option' });
  });

  test('a state that cannot be had fails its request only', async () => {
    let states = 0;
    const { scheduler } = setUp({
      onNewState: () => {
        if (++states === 1) throw new PlumblineError('out_of_memory', 'no room');
      },
    });
    const outcomes = await Promise.all([1, 2].map(() => outcomeOf(scheduler.submit(makeRequest()))));
    assert.deepEqual(outcomes.map(code), ['out_of_memory', undefined]);
  });
});

describe('cancellation', () => {
  test('takes a waiting request out of the queue at once', async () => {
    const { model, scheduler } = setUp();
    const abort = new AbortController();
    const first = outcomeOf(scheduler.submit(makeRequest()));
    const waiting = outcomeOf(scheduler.submit(makeRequest({ promptTokens: [9], signal: abort.signal })));
    assert.equal(scheduler.stats().queued, 2);
    abort.abort();
    assert.equal(scheduler.stats().queued, 1);
    assert.equal(code(await waiting), 'request_cancelled');
    await first;
    assert.ok(model.calls.every((call) => call.batch[0]?.tokens[0] !== 9));
    assert.equal(scheduler.stats().totals.cancelled, 1);
  });

  test('by a signal that was aborted before', async () => {
    const { model, scheduler } = setUp();
    assert.equal(
      code(await outcomeOf(scheduler.submit(makeRequest({ signal: AbortSignal.abort() })))),
      'request_cancelled',
    );
    assert.equal(model.calls.length, 0);
  });

  test('stops the running forward when it serves nobody else', async () => {
    for (const calls of [1, 2, 3, 4]) {
      const forwards = gate();
      const abort = new AbortController();
      const { model, scheduler } = setUp({ prefillChunk: 1, onForward: forwards.wait });
      const outcome = outcomeOf(scheduler.submit(makeRequest({ signal: abort.signal })));
      for (let call = 1; call < calls; call++) {
        await until(() => forwards.count() === 1);
        forwards.open();
      }
      await until(() => model.calls.length === calls);
      assert.equal(model.calls.at(-1)?.signal?.aborted, false);
      abort.abort();
      assert.equal(model.calls.at(-1)?.signal?.aborted, true);
      assert.equal(code(await outcome), 'request_cancelled');
      assert.equal(model.liveStates, 1, 'the state lives as long as the forward reads it');
      forwards.open();
      await until(() => model.liveStates === 0);
      assert.equal(model.calls.length, calls);
    }
  });

  test('in a batch leaves the forward and the others alone', async () => {
    const forwards = gate();
    const aborts = [new AbortController(), new AbortController()];
    const { model, scheduler } = setUp({
      maxParallel: 2,
      onForward: (call) => (call.batch.length === 2 ? forwards.wait() : undefined),
    });
    const [first, second] = aborts.map(({ signal }, id) =>
      outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id], maxTokens: 9, signal }))),
    );
    await until(() => forwards.count() === 1);
    const together = model.calls.at(-1);
    aborts[0]?.abort();
    assert.equal(together?.signal?.aborted, false);
    assert.equal(code(await first!), 'request_cancelled');
    forwards.open();
    const outcome = await second!;
    assert.deepEqual(
      answerOf(outcome),
      answerOf(await outcomeOf(setUp().scheduler.submit(makeRequest({ promptTokens: [1], maxTokens: 9 })))),
    );
    assert.equal(model.liveStates, 0);
  });

  test('of all requests of a batch stops its forward', async () => {
    const forwards = gate();
    const abort = new AbortController();
    const { model, scheduler } = setUp({
      maxParallel: 2,
      onForward: (call) => (call.batch.length === 2 ? forwards.wait() : undefined),
    });
    const outcomes = [1, 2].map((id) =>
      outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id], maxTokens: 9, signal: abort.signal }))),
    );
    await until(() => forwards.count() === 1);
    abort.abort();
    assert.equal(model.calls.at(-1)?.signal?.aborted, true);
    forwards.open();
    assert.deepEqual((await Promise.all(outcomes)).map(code), ['request_cancelled', 'request_cancelled']);
    await until(() => model.liveStates === 0);
  });

  test('forgets what nobody will read', async () => {
    const { scheduler } = setUp();
    const abort = new AbortController();
    const events = scheduler.submit(makeRequest({ maxTokens: 1000, signal: abort.signal }));
    await until(() => scheduler.stats().decoding === 1);
    abort.abort();
    const outcome = await outcomeOf(events);
    assert.deepEqual([outcome.events, code(outcome)], [[], 'request_cancelled']);
  });

  test('by leaving the iteration', async () => {
    const { model, scheduler } = setUp();
    for await (const event of scheduler.submit(makeRequest({ maxTokens: 1000 }))) if (event.type === 'token') break;
    await until(() => scheduler.stats().running === 0 && model.liveStates === 0);
    assert.ok(model.calls.length < 10);
    assert.equal(scheduler.stats().totals.cancelled, 1);
    assert.equal(code(await outcomeOf(scheduler.submit(makeRequest()))), undefined);
  });

  test('leaves no listener on the signal', async () => {
    const abort = new AbortController();
    let listeners = 0;
    const { signal } = abort;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args: Parameters<typeof add>) => (listeners++, add(...args));
    signal.removeEventListener = (...args: Parameters<typeof remove>) => (listeners--, remove(...args));
    await outcomeOf(setUp().scheduler.submit(makeRequest({ signal })));
    assert.equal(listeners, 0);
  });
});

describe('deadlines', () => {
  test('fail a request that waits, and one that runs', async () => {
    const forwards = gate();
    const { model, scheduler } = setUp({ onForward: forwards.wait });
    const running = outcomeOf(scheduler.submit(makeRequest({ timeoutMs: 20 })));
    const waiting = outcomeOf(scheduler.submit(makeRequest({ timeoutMs: 10 })));
    assert.deepEqual((await Promise.all([running, waiting])).map(code), ['deadline_exceeded', 'deadline_exceeded']);
    assert.equal(model.calls[0]?.signal?.aborted, true);
    assert.deepEqual(scheduler.stats().failures, { deadline_exceeded: 2 });
    forwards.open();
    await until(() => model.liveStates === 0);
  });

  test('of weeks do not fire at once', async () => {
    assert.equal(code(await outcomeOf(setUp().scheduler.submit(makeRequest({ timeoutMs: 1e12 })))), undefined);
  });
});

describe('failures', () => {
  test('at any forward give every state back and end every request once', async () => {
    const specs = [1, 2, 3].map((id) => makeRequest({ promptTokens: [id, 2, 3], maxTokens: 3 }));
    const total = setUp({ maxParallel: 2, prefillChunk: 1 });
    await Promise.all(specs.map((spec) => outcomeOf(total.scheduler.submit({ ...spec, text: new MarkSink() }))));
    for (let failing = 0; failing < total.model.calls.length; failing++) {
      const { model, scheduler } = setUp({
        maxParallel: 2,
        prefillChunk: 1,
        onForward: (_, index) => {
          if (index === failing) throw new PlumblineError('out_of_memory', 'no room');
        },
      });
      const outcomes = await Promise.all(
        specs.map((spec) => outcomeOf(scheduler.submit({ ...spec, text: new MarkSink() }))),
      );
      // A batch that fails as a whole is tried one by one, and then nobody fails.
      const expected = model.calls[failing]?.batch.length === 1 ? 1 : 0;
      assert.equal(outcomes.filter((outcome) => code(outcome) === 'out_of_memory').length, expected);
      assert.equal(outcomes.filter((outcome) => code(outcome) === undefined).length, 3 - expected);
      assert.equal(model.liveStates, 0);
      assertStatsAddUp(scheduler);
    }
  });

  test('of one sequence in a batch fail that request only', async () => {
    const { model, scheduler } = setUp({
      maxParallel: 3,
      onForward: ({ phase, batch }) => {
        if (phase === 'decode' && batch.some(({ history }) => history[0] === 2 && history.length === 3))
          throw new PlumblineError('out_of_memory', 'no room for 2');
      },
    });
    const outcomes = await Promise.all(
      [1, 2, 3].map((id) => outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id], maxTokens: 6 })))),
    );
    assert.deepEqual(outcomes.map(code), [undefined, 'out_of_memory', undefined]);
    assert.equal(idsOf(outcomes[1]!.events).length, 3, 'tokens made before the failure are read first');
    assert.equal(model.liveStates, 0);
  });

  test('of a row fail that request only, and the next one is fine', async () => {
    const { model, scheduler } = setUp({
      maxParallel: 2,
      onRow: (row, history) => {
        if (history[0] === 1 && history.length === 3) row.fill(Infinity);
      },
    });
    const outcomes = await Promise.all(
      [1, 2].map((id) => outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id], maxTokens: 6 })))),
    );
    assert.deepEqual(outcomes.map(code), ['non_finite_logits', undefined]);
    assert.equal(code(await outcomeOf(scheduler.submit(makeRequest({ promptTokens: [3] })))), undefined);
    assert.deepEqual(scheduler.stats().failures, { non_finite_logits: 1 });
    assert.equal(model.liveStates, 0);
  });

  test('of the sink are internal errors of that request', async () => {
    const push = () => {
      throw new TypeError('sink');
    };
    const { model, scheduler } = setUp({ maxParallel: 2 });
    const outcomes = await Promise.all(
      [makeRequest({ text: { push, flush: () => ({ text: '' }) } }), makeRequest()].map((request) =>
        outcomeOf(scheduler.submit(request)),
      ),
    );
    assert.deepEqual(outcomes.map(code), ['internal_error', undefined]);
    assert.ok(outcomes[0]?.error instanceof PlumblineError && outcomes[0].error.cause instanceof TypeError);
    assert.equal(model.liveStates, 0);
  });

  test('that poison the process end every request, and no other is taken', async () => {
    const { model, scheduler } = setUp({
      maxParallel: 2,
      onForward: ({ batch }) => {
        if (batch.length === 2) throw new PlumblineError('backend_failed', 'the pool is gone');
      },
    });
    const outcomes = await Promise.all([1, 2, 3].map(() => outcomeOf(scheduler.submit(makeRequest()))));
    assert.deepEqual(outcomes.map(code), ['backend_failed', 'backend_failed', 'backend_failed']);
    assert.equal(scheduler.stats().mode, 'broken');
    assert.throws(() => scheduler.submit(makeRequest()), { code: 'backend_failed', message: /restart/ });
    assert.equal(model.liveStates, 0);
    assert.deepEqual(await scheduler.shutdown({ drainMs: 1000 }), { drained: 0, abandoned: 0, dismissed: 0 });
    assert.equal(scheduler.stats().mode, 'broken');
  });

  test('a backend that returns too few results is found out', async () => {
    const { model, scheduler } = setUp({ maxParallel: 2 });
    const forward = model.forward.bind(model);
    model.forward = async (batch, options) => {
      const results = await forward(batch, options);
      if (results.length === 2) results.pop()?.state.release();
      return results;
    };
    const outcomes = await Promise.all(
      [1, 2].map((id) => outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id] })))),
    );
    assert.deepEqual(outcomes.map(code), [undefined, undefined], 'alone they work');
    assert.equal(model.liveStates, 0);
  });
});

describe('shutdown', () => {
  test('dismisses the waiting, drains the running, refuses the new', async () => {
    const forwards = gate();
    const { model, scheduler } = setUp({ onForward: forwards.wait });
    const running = outcomeOf(scheduler.submit(makeRequest()));
    await until(() => forwards.count() === 1);
    const waiting = outcomeOf(scheduler.submit(makeRequest()));
    const report = scheduler.shutdown({ drainMs: 10_000 });
    assert.equal(scheduler.stats().mode, 'draining');
    assert.equal(code(await waiting), 'shutting_down');
    assert.throws(() => scheduler.submit(makeRequest()), { code: 'shutting_down' });
    const pump = setInterval(forwards.open, 0);
    assert.equal(code(await running), undefined);
    assert.deepEqual(await report, { drained: 1, abandoned: 0, dismissed: 1 });
    clearInterval(pump);
    assert.equal(scheduler.stats().mode, 'stopped');
    assert.equal(model.liveStates, 0);
  });

  test('gives up what does not end within the bound, and waits for its forward', async () => {
    const forwards = gate();
    const { model, scheduler } = setUp({ onForward: forwards.wait });
    const running = outcomeOf(scheduler.submit(makeRequest()));
    await until(() => forwards.count() === 1);
    let stopped = false;
    const report = scheduler.shutdown({ drainMs: 10 }).then((said) => ((stopped = true), said));
    assert.equal(code(await running), 'shutting_down');
    assert.equal(model.calls[0]?.signal?.aborted, true);
    await nextTurn();
    assert.equal(stopped, false);
    forwards.open();
    assert.deepEqual(await report, { drained: 0, abandoned: 1, dismissed: 0 });
    assert.equal(model.liveStates, 0);
    assert.equal(await scheduler.shutdown({ drainMs: 0 }), await report);
  });

  test('of an idle scheduler is immediate', async () => {
    assert.deepEqual(await setUp().scheduler.shutdown({ drainMs: 60_000 }), { drained: 0, abandoned: 0, dismissed: 0 });
  });
});

describe('a slow consumer', () => {
  test('leaves at most its own tokens and two more events unread', async () => {
    const { model, scheduler } = setUp({ prefillChunk: 1 });
    const events = scheduler.submit(
      makeRequest({ promptTokens: Array.from({ length: 60 }, (_, i) => i), maxTokens: 5 }),
    );
    await until(() => scheduler.stats().totals.finished === 1);
    const read: GenerationEvent[] = [];
    for await (const event of events) read.push(event);
    assert.deepEqual(
      read.map((event) => event.type),
      ['prefill', 'token', 'token', 'token', 'token', 'token', 'finish'],
    );
    assert.equal(model.liveStates, 0);
  });
});

test('stats are numbers of their moment', async () => {
  const { scheduler } = setUp({ maxParallel: 2 });
  const before = scheduler.stats();
  await Promise.all([1, 2].map((id) => outcomeOf(scheduler.submit(makeRequest({ promptTokens: [id, id] })))));
  assert.equal(before.totals.submitted, 0);
  const { totals, finishReasons, mode } = scheduler.stats();
  assert.deepEqual(totals, {
    submitted: 2,
    finished: 2,
    failed: 0,
    cancelled: 0,
    promptTokens: 4,
    completionTokens: 8,
  });
  assert.deepEqual(finishReasons, { stop: 0, length: 2 });
  assert.equal(mode, 'accepting');
});
