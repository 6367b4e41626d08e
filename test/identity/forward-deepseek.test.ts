/**
 * Forwards of the DeepSeek V4 checkpoints are the same, however they are cut, shared out and batched, and change no value
 * that they grew from; every kind of state that a layer keeps is in what is compared.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { PlumblineError } from '../../src/errors.js';
import { loadModel } from '../../src/families/load.js';
import { bytesOf, forkIdentityTests, forwardIdentityTests, tokensOf } from '../support/forward-identity.js';
import { DEEPSEEK_GOLDEN_CASES } from '../support/golden.js';
import { openPagedTestModel } from '../support/models.js';
import { temporaryFolder } from '../support/repository.js';
import { writeDeepseekCheckpoint } from '../support/write-deepseek.js';

forwardIdentityTests({ checkpoints: DEEPSEEK_GOLDEN_CASES, dtypes: ['f32'], dtype: 'f32' });
forkIdentityTests({ checkpoints: DEEPSEEK_GOLDEN_CASES, dtype: 'f32' });

test('the state holds the window of every layer, and rings and rows of every compressor', async (t) => {
  const { model } = await openPagedTestModel(t, 'deepseek-v4-strong');
  const [result] = await model.forward(
    [{ state: model.newState(), tokens: tokensOf(3, model.vocabSize, 45), logits: 'none' }],
    { phase: 'prefill' },
  );
  const parts = (result!.state as PagedState).snapshot();
  const sizes = [...parts].map(([name, bytes]) => [name, bytes.length] as const);
  // sliding; chosen rows of 4 tokens with their indexer; all rows of 16 tokens; and so on.
  assert.deepEqual(sizes.slice(0, 8), [
    ['layers.0.window', 4 * 16 * 32],
    ['layers.1.window', 4 * 16 * 32],
    ['layers.1.compressor.ring', 4 * 8 * 2 * 64],
    ['layers.1.compressor.rows', 4 * 11 * 32],
    ['layers.1.indexer.ring', 4 * 8 * 2 * 32],
    ['layers.1.indexer.rows', 4 * 11 * 16],
    ['layers.2.window', 4 * 16 * 32],
    ['layers.2.compressor.ring', 4 * 16 * 2 * 32],
  ]);
  assert.deepEqual(sizes[8], ['layers.2.compressor.rows', 4 * 2 * 32]);
  for (const [name, bytes] of parts) {
    const words = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    assert.ok(
      words.every((word) => word !== 0 && Number.isFinite(word)),
      `${name} is full of numbers`,
    );
  }
  result!.state.release();
});

test('before a ring is full, its free rows are zero whatever was in its memory before', async (t) => {
  const { model } = await openPagedTestModel(t, 'deepseek-v4-strong');
  const snapshotAfter = async (tokens: number[]): Promise<ReadonlyMap<string, Uint8Array>> => {
    const empty = model.newState();
    const [result] = await model.forward([{ state: empty, tokens, logits: 'none' }], { phase: 'prefill' });
    empty.release();
    const snapshot = (result!.state as PagedState).snapshot();
    result!.state.release();
    return snapshot;
  };
  await snapshotAfter(tokensOf(4, model.vocabSize, 90)); // slabs full of numbers go back to the pool
  for (const [name, bytes] of await snapshotAfter(tokensOf(5, model.vocabSize, 3))) {
    const rows = name.endsWith('.window') ? 16 : name.startsWith('layers.2.') ? 16 : 8;
    if (bytes.length === 0) continue;
    const row = bytes.length / rows;
    assert.ok(
      bytes.subarray(0, 3 * row).some((byte) => byte !== 0),
      name,
    );
    assert.ok(
      bytes.subarray(3 * row).every((byte) => byte === 0),
      name,
    );
    if (name === 'layers.2.compressor.ring') break; // the layers behind repeat
  }
});

test('bfloat16 activations are refused with the reason', async (t) => {
  await assert.rejects(
    openPagedTestModel(t, 'deepseek-v4-strong', { dtype: 'bf16' }),
    (error) =>
      error instanceof PlumblineError &&
      error.code === 'invalid_option' &&
      /dtype bf16 is not one of auto, f32 for this model: the reference of this family has no working bfloat16/.test(
        error.message,
      ),
  );
});

test('the model hands over the laws of its own sampler and does not speculate', async (t) => {
  const { model } = await openPagedTestModel(t, 'deepseek-v4-strong', { dtype: 'auto' });
  assert.equal(model.family, 'deepseek_v4');
  assert.equal(model.activationLaw, 'f32');
  assert.deepEqual(model.laws, {
    sampler: 'ds4',
    samplingDefaults: { temperature: 1, topP: 1, topK: 0, minP: 0.05 },
    invalidRow: 'ds4-fallback',
    prefixKey: 'text',
    modelAliases: [
      { name: 'deepseek-chat', thinking: false },
      { name: 'deepseek-reasoner', thinking: true },
    ],
    chat: 'dsml',
  });
  assert.equal('speculation' in model, false);
});

test('a checkpoint under either spelling of its names gives the same logits', async (t) => {
  const { backend } = await openBackend('cpu', 1);
  t.after(() => backend.close());
  const rows: Buffer[] = [];
  for (const spelling of ['published', 'rewritten'] as const) {
    const dir = temporaryFolder(t, 'spelling');
    writeDeepseekCheckpoint(dir, { spelling, extras: true });
    const options = {
      dir,
      id: spelling,
      backend,
      dtype: 'auto',
      gatePolicy: 'strict' as const,
      maxRows: 64,
      sequences: 2,
    };
    const { model, report } = await loadModel(options);
    assert.deepEqual(report.unknownTensors, []);
    const state = model.newState();
    const tokens = tokensOf(9, model.vocabSize, 60);
    const [result] = await model.forward([{ state, tokens, logits: 'all' }], { phase: 'prefill' });
    rows.push(Buffer.concat(result!.logits.map(bytesOf)));
    state.release();
    result!.state.release();
    await model.close();
  }
  assert.ok(rows[0]!.equals(rows[1]!));
  assert.equal(backend.memory().allocated, 0);
});
