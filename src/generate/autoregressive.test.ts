import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { NonFiniteLogitsError, PlumblineError } from '../errors.js';
import { createSampler } from '../sample/sampler.js';
import { FakeLanguageModel, type FakeModelOptions } from '../../test/support/fake-language-model.js';
import { AutoregressiveSequence, generate, type GenerateOptions } from './autoregressive.js';
import type { Step } from './sequence.js';

const settings = { temperature: 0, topP: 1, topK: 0, presencePenalty: 0, frequencyPenalty: 0, seed: 7n };
const sampler = (temperature = 0) => createSampler('mtplx', { ...settings, temperature }, { vocabSize: 64 });
const options = (more: Partial<GenerateOptions> = {}): GenerateOptions => ({
  promptTokens: [5, 6, 7],
  maxTokens: 4,
  stopTokenIds: [],
  sampler: sampler(),
  ...more,
});

async function collect(model: FakeLanguageModel, given: GenerateOptions): Promise<Step[]> {
  const steps: Step[] = [];
  for await (const step of generate(model, given)) steps.push(step);
  return steps;
}
const tokensOf = (steps: readonly Step[]) =>
  steps.flatMap((step) => (step.kind === 'token' ? [step.token.tokenId as number] : []));

/** The same law, said plainly. */
function greedy(model: FakeLanguageModel, prompt: readonly number[], count: number): number[] {
  const history = [...prompt];
  while (history.length < prompt.length + count) {
    const row = model.rowAfter(history);
    history.push(row.indexOf(Math.max(...row)));
  }
  return history.slice(prompt.length);
}

describe('autoregressive loop', () => {
  test('forwards the prompt but its last token in chunks, then one row, then token by token', async () => {
    const model = new FakeLanguageModel();
    const [a, b, c, d] = greedy(model, [1, 2, 3, 4, 5, 6], 4);
    const steps = await collect(model, options({ promptTokens: [1, 2, 3, 4, 5, 6], prefillChunk: 2 }));
    assert.deepEqual(
      model.calls.map(({ phase, batch }) => [phase, batch[0]?.tokens, batch[0]?.logits]),
      [
        ['prefill', [1, 2], 'none'],
        ['prefill', [3, 4], 'none'],
        ['prefill', [5], 'none'],
        ['prefill', [6], 'last'],
        ['decode', [a], 'last'],
        ['decode', [b], 'last'],
        ['decode', [c], 'last'],
      ],
    );
    assert.deepEqual(
      steps.slice(0, 3),
      [2, 4, 5].map((processed) => ({ kind: 'prompt', processed, total: 6 })),
    );
    assert.deepEqual(tokensOf(steps), [a, b, c, d]);
    assert.equal(model.liveStates, 0);
  });

  test('no chunk size changes a token', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(63), { minLength: 1, maxLength: 20 }),
        fc.integer({ min: 1, max: 25 }),
        async (promptTokens, prefillChunk) => {
          const model = new FakeLanguageModel();
          const steps = await collect(model, options({ promptTokens, prefillChunk }));
          assert.deepEqual(tokensOf(steps), greedy(model, promptTokens, 4));
          assert.equal(model.liveStates, 0);
        },
      ),
      { numRuns: 50 },
    );
  });

  test('a state that holds part of the prompt goes on from there', async () => {
    const model = new FakeLanguageModel();
    const [held] = await model.forward([{ state: model.newState(), tokens: [5, 6], logits: 'none' }], {
      phase: 'prefill',
    });
    assert.ok(held);
    model.calls.length = 0;
    const steps: Step[] = [];
    for await (const step of generate(model, options({ promptTokens: [5, 6, 7, 8] }), held.state)) steps.push(step);
    assert.deepEqual(model.calls[0]?.batch, [{ history: [5, 6], tokens: [7], logits: 'none' }]);
    assert.deepEqual(tokensOf(steps), greedy(model, [5, 6, 7, 8], 4));
  });

  test('a stop token is the last token and is not forwarded', async () => {
    const model = new FakeLanguageModel();
    const [a, b, c] = greedy(model, [5, 6, 7], 3);
    assert.ok(a !== undefined && b !== undefined && a !== b);
    const steps = await collect(model, options({ stopTokenIds: [b] }));
    assert.deepEqual(steps.map((step) => (step.kind === 'token' ? [step.token.tokenId, step.end] : [])).slice(1), [
      [a, undefined],
      [b, 'stop-token'],
    ]);
    assert.equal(model.calls.at(-1)?.batch[0]?.tokens[0], a);
    assert.notEqual(c, undefined);
  });

  test('a stop token that is also the last allowed one ends by stop', async () => {
    const model = new FakeLanguageModel();
    const [first] = greedy(model, [5, 6, 7], 1);
    assert.ok(first !== undefined);
    assert.deepEqual((await collect(model, options({ maxTokens: 1, stopTokenIds: [first] }))).at(-1), {
      kind: 'token',
      token: { tokenId: first },
      end: 'stop-token',
    });
    assert.deepEqual((await collect(model, options({ maxTokens: 1 }))).at(-1), {
      kind: 'token',
      token: { tokenId: first },
      end: 'length',
    });
  });

  test("sampling draws once a token, in order, from the request's own generator", async () => {
    const steps = await collect(new FakeLanguageModel(), options({ maxTokens: 8, sampler: sampler(1) }));
    const again = await collect(
      new FakeLanguageModel(),
      options({ maxTokens: 8, sampler: sampler(1), prefillChunk: 1 }),
    );
    assert.deepEqual(tokensOf(again), tokensOf(steps));
    const reference = sampler(1);
    const history = [5, 6, 7];
    for (const token of tokensOf(steps)) {
      assert.equal(
        reference.next(new FakeLanguageModel().rowAfter(history), { site: 'ar_step', phase: 'decode', step: 0 })
          .tokenId,
        token,
      );
      history.push(token);
    }
  });

  test('the closing forward covers the last token and its row decides nothing', async () => {
    for (const stopTokenIds of [[], [greedy(new FakeLanguageModel(), [5, 6, 7], 2)[1] ?? -1]]) {
      const model = new FakeLanguageModel();
      const sequence = new AutoregressiveSequence(model.newState(), options({ stopTokenIds, closingForward: true }));
      const steps: Step[] = [];
      for (let work = sequence.work; work !== undefined; work = sequence.work) {
        const [result] = await model.forward([work.request], { phase: work.phase });
        assert.ok(result);
        steps.push(sequence.accept(result));
      }
      assert.deepEqual(steps.at(-1), { kind: 'closed' });
      assert.equal(model.calls.at(-1)?.phase, 'decode');
      const state = sequence.takeState();
      assert.equal(state?.length, 3 + tokensOf(steps).length);
      sequence.release();
      assert.equal(model.liveStates, 1);
      state?.release();
      assert.equal(model.liveStates, 0);
    }
  });

  test('stop() ends the turn behind the newest token', async () => {
    const model = new FakeLanguageModel();
    for (const closingForward of [false, true]) {
      const sequence = new AutoregressiveSequence(model.newState(), options({ promptTokens: [5], closingForward }));
      const [result] = await model.forward([sequence.work!.request], { phase: 'prefill' });
      sequence.accept(result!);
      sequence.stop();
      assert.equal(sequence.work === undefined, !closingForward);
      sequence.stop();
      sequence.release();
    }
    assert.equal(model.liveStates, 0);
  });
});

describe('invalid rows', () => {
  const spoil = (at: number): FakeModelOptions => ({ onRow: (row, history) => history.length === at && row.fill(NaN) });
  const cases = [
    { at: 3, census: { site: 'prefill_frontier', phase: 'prefill', step: 0 }, tokens: 0 },
    { at: 5, census: { site: 'ar_step', phase: 'decode', step: 2 }, tokens: 2 },
    { at: 7, census: { site: 'closing_forward', phase: 'decode', step: 4 }, tokens: 4 },
  ];
  for (const { at, census, tokens } of cases) {
    test(`at ${census.site} make no token and give every state back`, async () => {
      const model = new FakeLanguageModel(spoil(at));
      const seen: Step[] = [];
      await assert.rejects(
        async () => {
          for await (const step of generate(model, options({ closingForward: true }))) seen.push(step);
        },
        (error) => {
          assert.ok(error instanceof NonFiniteLogitsError);
          assert.deepEqual(error.census, { ...census, nanCount: 64, infCount: 0, vocabSize: 64 });
          return true;
        },
      );
      assert.equal(tokensOf(seen).length, tokens);
      assert.equal(model.liveStates, 0);
    });
  }

  test('a spoiled row behind the end is never reached', async () => {
    const model = new FakeLanguageModel(spoil(7));
    assert.equal(tokensOf(await collect(model, options())).length, 4);
  });
});

describe('states are released exactly once', () => {
  const calls = 7; // 2 chunks, the last prompt token, 3 tokens, the closing forward

  test('when any forward fails', async () => {
    for (let failing = 0; failing < calls; failing++) {
      const model = new FakeLanguageModel({
        onForward: (_, index) => {
          if (index === failing) throw new PlumblineError('out_of_memory', 'no room');
        },
      });
      await assert.rejects(collect(model, options({ prefillChunk: 1, closingForward: true })), {
        code: 'out_of_memory',
      });
      assert.equal(model.calls.length, failing + 1);
      assert.equal(model.liveStates, 0);
    }
  });

  test('when the signal aborts before any forward, or while it runs', async () => {
    for (let aborting = 0; aborting < calls; aborting++) {
      const during = new AbortController();
      const running = new FakeLanguageModel({
        onForward: (_, index) => {
          if (index === aborting) during.abort();
        },
      });
      await assert.rejects(
        collect(running, options({ prefillChunk: 1, closingForward: true, signal: during.signal })),
        { code: 'request_cancelled' },
      );
      assert.equal(running.calls.length, aborting + 1);
      assert.equal(running.liveStates, 0);

      const between = new AbortController();
      const waiting = new FakeLanguageModel();
      await assert.rejects(
        async () => {
          if (aborting === 0) between.abort();
          let done = 0;
          for await (const _ of generate(
            waiting,
            options({ prefillChunk: 1, closingForward: true, signal: between.signal }),
          ))
            if (++done === aborting) between.abort();
        },
        { code: 'request_cancelled' },
      );
      assert.equal(waiting.calls.length, aborting);
      assert.equal(waiting.liveStates, 0);
    }
  });

  test('when the consumer leaves after any step', async () => {
    for (let leaving = 1; leaving <= calls; leaving++) {
      const model = new FakeLanguageModel();
      let done = 0;
      for await (const _ of generate(model, options({ prefillChunk: 1, closingForward: true })))
        if (++done === leaving) break;
      assert.equal(model.liveStates, 0);
    }
  });

  test('when the options make no sequence, or a result comes too late', async () => {
    const model = new FakeLanguageModel();
    for (const wrong of [{ promptTokens: [] }, { maxTokens: 0 }, { prefillChunk: 0 }]) {
      assert.throws(() => new AutoregressiveSequence(model.newState(), options(wrong)), { code: 'internal_error' });
    }
    const sequence = new AutoregressiveSequence(model.newState(), options());
    const [result] = await model.forward([sequence.work!.request], { phase: 'prefill' });
    sequence.release();
    sequence.release();
    assert.equal(sequence.work, undefined);
    assert.throws(() => sequence.accept(result!), { code: 'internal_error' });
    assert.equal(model.liveStates, 0);
  });

  test('when a forward returns no row, or two', async () => {
    const model = new FakeLanguageModel();
    for (const logits of ['none', 'all'] as const) {
      const sequence = new AutoregressiveSequence(model.newState(), options({ promptTokens: [5] }));
      const state = sequence.work!.request.state;
      const [result] = await model.forward([{ state, tokens: [5, 6], logits }], { phase: 'prefill' });
      assert.throws(() => sequence.accept(result!), { code: 'internal_error', message: /returned [02]/ });
      sequence.release();
    }
    assert.equal(model.liveStates, 0);
  });
});

test('under a law that judges no rows, no row ends the turn, the closing one included; all of them are seen', async () => {
  const model = new FakeLanguageModel({ onRow: (row) => row.fill(Number.NaN) });
  const ds4 = createSampler('ds4', { ...settings, temperature: 1 }, { vocabSize: 64 });
  const steps = await collect(model, options({ sampler: ds4, closingForward: true }));
  assert.deepEqual(tokensOf(steps), [0, 0, 0, 0]);
  assert.equal(steps.at(-1)?.kind, 'closed');
  assert.equal(ds4.warning?.rows, 5);
  assert.equal(ds4.warning.first.site, 'prefill_frontier');
  assert.equal(model.liveStates, 0);
});
