/**
 * Drafts that the head makes in one go are, bit for bit, those that it makes one by one, whoever stands beside them; and a
 * sequence that chooses otherwise, or finds a broken row among them, leaves nothing behind.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { DraftHead, DraftResult, LanguageModel } from '../../src/engine/model.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { NonFiniteLogitsError, PlumblineError } from '../../src/errors.js';
import type { QwenModel } from '../../src/families/qwen/model.js';
import { AutoregressiveSequence } from '../../src/generate/autoregressive.js';
import { createDepthPolicy } from '../../src/generate/depth-policy.js';
import { SpeculativeSequence } from '../../src/generate/speculate.js';
import { createSampler, createSpeculativeSampler } from '../../src/sample/sampler.js';
import type { SpeculativeSampler } from '../../src/sample/speculation.js';
import { inspectRow } from '../../src/sample/validity.js';
import { openTestModel } from '../support/models.js';
import { EMBEDDED_MODEL } from '../support/repository.js';
import { runSequence, tokensOf } from '../support/run-sequence.js';

const PROMPTS = readFileSync(join(EMBEDDED_MODEL, 'acceptance_prompts.jsonl'), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => (JSON.parse(line) as { readonly input_ids: number[] }).input_ids);

/** A head state behind the first tokens of a prompt, and `fresh` further pairs for it. */
async function prepared(model: QwenModel, prompt: readonly number[], fresh: number) {
  const empty = model.newState();
  const [trunk] = await model.forward([{ state: empty, tokens: prompt, logits: 'none', hidden: 'all' }], {
    phase: 'prefill',
  });
  const head = model.speculation.head!;
  const emptyHead = head.newState();
  const hidden = trunk!.hidden!.slice(0, -1);
  const [cached] = await head.forward(
    [{ state: emptyHead, tokens: prompt.slice(1, -fresh), hidden: hidden.slice(0, -fresh), output: 'none' }],
    {},
  );
  for (const state of [empty, emptyHead, trunk!.state]) state.release();
  return { state: cached!.state, tokens: prompt.slice(-fresh), hidden: hidden.slice(-fresh) };
}

const bytesOf = (row: Float32Array | undefined) => Buffer.from(row!.buffer, row!.byteOffset, row!.byteLength);

test('rows, streams, tokens and states of a chain are those of drafts one by one, in any company', async (t) => {
  for (const [dtype, backend, threads] of [
    ['bf16', 'cpu', 2],
    ['f32', 'cpu', 1],
    ['bf16', 'wasm', 1],
  ] as const) {
    const { model } = await openTestModel(t, 'plumbline-tiny', { dtype, backend, threads });
    const head = model.speculation.head!;
    const starts = await Promise.all([1, 3, 4].map((fresh, i) => prepared(model, PROMPTS[30 + 5 * i]!, fresh)));
    const depths = [1, 3, 2];
    const requests = starts.map((start, i) => ({ ...start, output: 'last' as const, drafts: depths[i]! }));
    const together = await head.forward(requests, {});
    for (const [i, result] of together.entries()) {
      assert.equal(result.further!.length, depths[i]! - 1);
      let [alone] = await head.forward([{ ...starts[i]!, output: 'last' }], {});
      for (const [step, row] of [result, ...result.further!].entries()) {
        const label = `${backend} ${dtype} sequence ${i} row ${step}`;
        assert.ok(bytesOf(row.logits).equals(bytesOf(alone!.logits)), `${label}: logits`);
        assert.ok(bytesOf(row.hidden).equals(bytesOf(alone!.hidden)), `${label}: stream`);
        const [ours, theirs] = [row.state as PagedState, alone!.state as PagedState];
        assert.deepEqual([...ours.tokens()], [...theirs.tokens()], `${label}: ids`);
        const parts = ours.snapshot();
        for (const [part, bytes] of theirs.snapshot()) {
          assert.ok(Buffer.compare(parts.get(part)!, bytes) === 0, `${label}: ${part}`);
        }
        const verdict = inspectRow(alone!.logits!);
        assert.ok(verdict.valid);
        const before = alone!;
        [alone] = await head.forward(
          [{ state: before.state, tokens: [verdict.argmax], hidden: [before.hidden!], output: 'last' }],
          {},
        );
        before.state.release();
      }
      alone!.state.release();
      for (const { state } of [result, ...result.further!]) state.release();
      starts[i]!.state.release();
    }
    assert.equal(model.stateUsage().used, 0, 'every state was given back');
  }
});

test('a chain past the context is refused, and a cancelled one leaves no state', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'f32' });
  const head = model.speculation.head!;
  const start = await prepared(model, PROMPTS[30]!, 2);
  const request = { ...start, output: 'last' as const };
  await assert.rejects(
    head.forward([{ ...request, drafts: model.contextLength }], {}),
    (error) => error instanceof PlumblineError && error.code === 'context_length_exceeded',
  );
  await assert.rejects(
    head.forward([{ ...request, drafts: 3 }], { signal: AbortSignal.abort() }),
    (error) => error instanceof PlumblineError && error.code === 'request_cancelled',
  );
  start.state.release();
  assert.equal(model.stateUsage().used, 0);
});

const GREEDY = { temperature: 0, topP: 0.95, topK: 20, presencePenalty: 0, frequencyPenalty: 0, seed: 1n };

function sequenceOf(model: QwenModel, promptTokens: number[], sampler: SpeculativeSampler, head: DraftHead) {
  return new SpeculativeSequence(model.newState(), {
    promptTokens,
    maxTokens: 40,
    stopTokenIds: [4091, 4089],
    sampler,
    head,
    depthPolicy: createDepthPolicy('off', 3),
    contextCopy: undefined,
    maxWindow: model.speculation.maxWindow,
  });
}

/** The model with another head in front of its own. */
const modelWith = (model: QwenModel, head: DraftHead): LanguageModel => ({
  family: model.family,
  id: model.id,
  vocabSize: model.vocabSize,
  contextLength: model.contextLength,
  laws: model.laws,
  activationLaw: model.activationLaw,
  newState: () => model.newState(),
  forward: (batch, options) => model.forward(batch, options),
  speculation: { ...model.speculation, head },
  close: () => model.close(),
});

const greedySampler = (model: QwenModel) =>
  createSpeculativeSampler('mtplx', GREEDY, { vocabSize: model.vocabSize, acceptance: 'plain' });

test('a sampler that chooses otherwise than the head went on goes on from its own choice', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'bf16' });
  const head = model.speculation.head!;
  const prompt = PROMPTS[31]!;
  const plain = new AutoregressiveSequence(model.newState(), {
    promptTokens: prompt,
    maxTokens: 40,
    stopTokenIds: [4091, 4089],
    sampler: createSampler('mtplx', GREEDY, { vocabSize: model.vocabSize }),
  });
  const expected = tokensOf(await runSequence(model, plain));
  plain.release();
  const fed: number[][] = [];
  const watched: DraftHead = {
    ...head,
    forward: (batch, options) => {
      fed.push(...batch.filter(({ output }) => output === 'last').map(({ tokens }) => [...tokens]));
      return head.forward(batch, options);
    },
  };
  const inner = greedySampler(model);
  for (const stubborn of [0, 1, 2]) {
    let asked = 0;
    const sampler: SpeculativeSampler = {
      ...inner,
      seed: inner.seed,
      next: (row, context) => inner.next(row, context),
      accept: (window) => inner.accept(window),
      draft: (row, context) => {
        const choice = inner.draft(row, context);
        return asked++ % 3 === stubborn ? { tokenId: (choice.tokenId + 1) % model.vocabSize } : choice;
      },
    };
    fed.length = 0;
    const sequence = sequenceOf(model, prompt, sampler, watched);
    assert.deepEqual(
      tokensOf(await runSequence(modelWith(model, watched), sequence)),
      expected,
      `draft ${stubborn} is another`,
    );
    // A choice that is no last draft has to be fed by hand; the last one is fed to nobody.
    const again = fed.length - sequence.speculation.rounds + (sequence.speculation.skipped.no_room ?? 0);
    assert.ok(stubborn === 2 ? again === 0 : again > 0, `${again} further forwards`);
    sequence.release();
    assert.equal(model.stateUsage().used, 0);
  }
});

test('a broken row in a chain raises when it is reached, and every state is given back', async (t) => {
  const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'bf16' });
  const head = model.speculation.head!;
  for (const broken of [0, 1, 2]) {
    const breaking: DraftHead = {
      ...head,
      forward: async (batch, options) => {
        const results = await head.forward(batch, options);
        for (const result of results) rowsOf(result)[broken]?.fill(NaN);
        return results;
      },
    };
    const sequence = sequenceOf(model, PROMPTS[31]!, greedySampler(model), breaking);
    await assert.rejects(
      runSequence(modelWith(model, breaking), sequence),
      (error) => error instanceof NonFiniteLogitsError && error.message.includes('draft'),
    );
    sequence.release();
    assert.equal(model.stateUsage().used, 0, `row ${broken}`);
  }
});

const rowsOf = ({ logits, further = [] }: DraftResult): Float32Array[] =>
  logits ? [logits, ...further.map((step) => step.logits)] : [];
