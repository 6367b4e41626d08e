/**
 * Speculation changes no token and leaves no trace: greedy and coupled text is that of plain decoding, and the state behind
 * a turn is, byte for byte, that of an engine which only ever saw its tokens.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { SequenceState } from '../../src/engine/model.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import type { QwenModel } from '../../src/families/qwen/model.js';
import { AutoregressiveSequence } from '../../src/generate/autoregressive.js';
import { ContextCopy } from '../../src/generate/context-copy.js';
import { createDepthPolicy, type DepthPolicyName } from '../../src/generate/depth-policy.js';
import { SpeculativeSequence } from '../../src/generate/speculate.js';
import { createSampler, createSpeculativeSampler } from '../../src/sample/sampler.js';
import type { AcceptanceLaw } from '../../src/sample/speculation.js';
import { openTestModel } from '../support/models.js';
import { EMBEDDED_MODEL } from '../support/repository.js';
import { runSequence, runWork, tokensOf } from '../support/run-sequence.js';

const STOPS = [4091, 4089];

const PROMPTS = readFileSync(join(EMBEDDED_MODEL, 'acceptance_prompts.jsonl'), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => (JSON.parse(line) as { readonly input_ids: number[] }).input_ids);

interface Settings {
  readonly temperature: number;
  readonly seed?: bigint;
  readonly presencePenalty?: number;
  readonly maxTokens?: number;
}

const sampling = ({ temperature, seed = 11n, presencePenalty = 0 }: Settings) => ({
  temperature,
  topP: 0.95,
  topK: 20,
  presencePenalty,
  frequencyPenalty: 0,
  seed,
});

async function plainTokens(model: QwenModel, promptTokens: number[], settings: Settings): Promise<number[]> {
  const sequence = new AutoregressiveSequence(model.newState(), {
    promptTokens,
    maxTokens: settings.maxTokens ?? 48,
    stopTokenIds: STOPS,
    sampler: createSampler('mtplx', sampling(settings), { vocabSize: model.vocabSize }),
  });
  const tokens = tokensOf(await runSequence(model, sequence));
  sequence.release();
  return tokens;
}

interface How {
  readonly acceptance: AcceptanceLaw;
  readonly depth: number;
  readonly copy?: boolean;
  readonly policy?: DepthPolicyName;
  readonly closingForward?: boolean;
}

function speculative(model: QwenModel, promptTokens: number[], settings: Settings, how: How): SpeculativeSequence {
  return new SpeculativeSequence(model.newState(), {
    promptTokens,
    maxTokens: settings.maxTokens ?? 48,
    stopTokenIds: STOPS,
    sampler: createSpeculativeSampler('mtplx', sampling(settings), {
      vocabSize: model.vocabSize,
      acceptance: how.acceptance,
    }),
    head: model.speculation.head,
    depthPolicy: createDepthPolicy(how.policy ?? 'off', how.depth),
    contextCopy: how.copy === true ? new ContextCopy(promptTokens) : undefined,
    maxWindow: model.speculation.maxWindow,
    prefillChunk: 40,
    closingForward: how.closingForward,
  });
}

test('greedy text is that of plain decoding at every depth, with and without context copy, in f32 and bf16', async (t) => {
  for (const dtype of ['f32', 'bf16'] as const) {
    const { model } = await openTestModel(t, 'plumbline-tiny', { dtype, gatePolicy: 'uniform' });
    for (const prompt of [...PROMPTS.slice(0, 2), PROMPTS[30]!, PROMPTS[40]!]) {
      const expected = await plainTokens(model, prompt, { temperature: 0 });
      for (const depth of [0, 1, 2, 3]) {
        for (const copy of [false, true]) {
          const sequence = speculative(model, prompt, { temperature: 0 }, { acceptance: 'plain', depth, copy });
          assert.deepEqual(
            tokensOf(await runSequence(model, sequence)),
            expected,
            `${dtype} depth ${depth} copy ${copy}`,
          );
          sequence.release();
        }
      }
    }
    assert.equal(model.stateUsage().used, 0);
  }
});

test('coupled text is that of plain decoding for the same seed, penalties and depth policies included', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'bf16', gatePolicy: 'uniform' });
  const policies: DepthPolicyName[] = ['off', 'expected-value', 'position-average', 'streak', 'cost'];
  for (const [i, prompt] of [...PROMPTS.slice(5, 7), PROMPTS[33]!, PROMPTS[42]!].entries()) {
    for (const settings of [
      { temperature: 0.7, seed: BigInt(i) },
      { temperature: 1.2, seed: BigInt(100 + i), presencePenalty: 0.8 },
    ]) {
      const expected = await plainTokens(model, prompt, settings);
      for (const policy of policies) {
        const how: How = { acceptance: 'coupled', depth: 1 + (i % 3), copy: i % 2 === 0, policy };
        const sequence = speculative(model, prompt, settings, how);
        assert.deepEqual(tokensOf(await runSequence(model, sequence)), expected, `${policy} prompt ${i}`);
        sequence.release();
      }
    }
  }
});

test('the widest windows are verified whole, several at once, however few rows a chunk of a prompt has', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { maxRows: 4 });
  const { maxWindow } = model.speculation;
  const windows = [PROMPTS[0]!, PROMPTS[1]!].map((prompt) => prompt.slice(0, maxWindow));
  const forward = async (prompts: readonly number[][]) => {
    const state = model.newState();
    const requests = prompts.map(
      (tokens) => ({ state, tokens, logits: 'all', hidden: 'all', revocable: true }) as const,
    );
    const results = await model.forward(requests, { phase: 'verify' });
    for (const result of [state, ...results.map((made) => made.state)]) result.release();
    return results;
  };
  const together = await forward(windows);
  for (const [i, window] of windows.entries()) {
    const [alone] = await forward([window]);
    assert.deepEqual([alone!.logits.length, alone!.hidden!.length, alone!.window!.tokens], Array(3).fill(maxWindow));
    assert.deepEqual(together[i]!.logits, alone!.logits);
  }
});

function assertSameState(actual: SequenceState, expected: SequenceState, label: string): void {
  assert.equal(actual.length, expected.length, label);
  const parts = (actual as PagedState).snapshot();
  for (const [part, bytes] of (expected as PagedState).snapshot()) {
    assert.ok(Buffer.compare(parts.get(part)!, bytes) === 0, `${label}: ${part}`);
  }
}

/** Trunk and head states of an engine that is given all tokens at once. */
async function coldStates(model: QwenModel, tokens: readonly number[]) {
  const empty = model.newState();
  const [trunk] = await model.forward([{ state: empty, tokens, logits: 'none', hidden: 'all' }], { phase: 'prefill' });
  empty.release();
  const head = model.speculation.head!;
  const emptyHead = head.newState();
  const [cache] = await head.forward(
    [{ state: emptyHead, tokens: tokens.slice(1), hidden: trunk!.hidden!.slice(0, -1), output: 'none' }],
    {},
  );
  emptyHead.release();
  return { trunk: trunk!.state, head: cache!.state };
}

test('the states behind a speculative turn are those of a cold run over its tokens, trunk and draft head', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'bf16', gatePolicy: 'uniform' });
  for (const acceptance of ['plain', 'block', 'coupled'] as const) {
    for (const temperature of [0, 1.3]) {
      for (const [i, prompt] of PROMPTS.slice(36, 42).entries()) {
        const how: How = { acceptance, depth: 1 + (i % 3), copy: i % 2 === 1, closingForward: true };
        const settings = { temperature, seed: BigInt(i), maxTokens: 20 + i };
        const sequence = speculative(model, prompt, settings, how);
        const steps = await runSequence(model, sequence);
        const tokens = [...prompt, ...tokensOf(steps)];
        const states = sequence.takeStates()!;
        const cold = await coldStates(model, tokens);
        assertSameState(states.trunk, cold.trunk, `${acceptance} T${temperature} prompt ${i} trunk`);
        assertSameState(states.head!, cold.head, `${acceptance} T${temperature} prompt ${i} head`);
        for (const state of [states.trunk, states.head!, cold.trunk, cold.head]) state.release();
      }
    }
  }
  assert.equal(model.stateUsage().used, 0);
});

test('under strict the state is that of a run which forwards each token in the phase it was first forwarded in', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'bf16', gatePolicy: 'strict' });
  const prompt = PROMPTS[40]!;
  const how: How = { acceptance: 'plain', depth: 3, closingForward: true };
  const sequence = speculative(model, prompt, { temperature: 1.2, maxTokens: 30 }, how);
  const tokens = [...prompt, ...tokensOf(await runSequence(model, sequence))];
  const states = sequence.takeStates()!;
  let state = model.newState();
  for (const [i, token] of tokens.entries()) {
    const phase = i < prompt.length ? 'prefill' : i === tokens.length - 1 ? 'final-primary' : 'verify';
    const [result] = await model.forward([{ state, tokens: [token], logits: 'none' }], { phase });
    state.release();
    state = result!.state;
  }
  assertSameState(states.trunk, state, 'strict');
  for (const held of [states.trunk, states.head!, state]) held.release();
});

test('a sequence that is given up at any point gives every state back', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'f32' });
  for (let stopAfter = 0; stopAfter < 24; stopAfter++) {
    for (const how of ['release', 'stop'] as const) {
      const settings = { temperature: 1.1, maxTokens: 16 };
      const sequence = speculative(model, PROMPTS[31]!, settings, { acceptance: 'plain', depth: 3, copy: true });
      for (let i = 0; i < stopAfter && sequence.work; i++) sequence.take(await runWork(model, sequence.work));
      if (how === 'stop') {
        sequence.stop();
        for (let work = sequence.work; work !== undefined; work = sequence.work) {
          sequence.take(await runWork(model, work));
        }
      }
      sequence.release();
      assert.equal(model.stateUsage().used, 0, `${how} after ${stopAfter}`);
    }
  }
});
