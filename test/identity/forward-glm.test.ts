/**
 * Forwards of the GLM checkpoints are the same, however they are cut, shared out and batched, and change no value that they
 * grew from; every kind of state that a layer keeps is in what is compared.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { PlumblineError } from '../../src/errors.js';
import { loadModel } from '../../src/families/load.js';
import { bytesOf, forkIdentityTests, forwardIdentityTests, tokensOf } from '../support/forward-identity.js';
import { GLM_GOLDEN_CASES } from '../support/golden.js';
import { openPagedTestModel } from '../support/models.js';
import { temporaryFolder } from '../support/repository.js';
import { tinyGlmConfig, writeGlmCheckpoint, type GlmCheckpointOptions } from '../support/write-glm.js';

forwardIdentityTests({ checkpoints: GLM_GOLDEN_CASES, dtypes: ['f32'], dtype: 'f32' });
forkIdentityTests({ checkpoints: GLM_GOLDEN_CASES, dtype: 'f32' });

test('the state holds tails and recurrences of linear layers, rows of sparse ones, and pools where one chooses', async (t) => {
  const { model } = await openPagedTestModel(t, 'glm5-next-shared-index');
  const empty = model.newState();
  const tokens = tokensOf(3, model.vocabSize, 45);
  const [result] = await model.forward([{ state: empty, tokens, logits: 'none' }], { phase: 'prefill' });
  empty.release();
  const parts = (result!.state as PagedState).snapshot();
  result!.state.release();
  const sizes = [...parts].map(([name, bytes]) => [name, bytes.length] as const);
  // Layers: two linear, one that chooses, one that shares, one linear, and so on.
  assert.deepEqual(sizes.slice(2, 10), [
    ['layers.1.conv', 4 * 3 * 192],
    ['layers.1.recurrent', 4 * 4 * 16 * 16],
    ['layers.2.latent', 4 * 45 * 24],
    ['layers.2.pending', 4 * 8 * 2 * 16],
    ['layers.2.pools', 4 * 5 * 16],
    ['layers.3.latent', 4 * 45 * 24],
    ['layers.4.conv', 4 * 3 * 192],
    ['layers.4.recurrent', 4 * 4 * 16 * 16],
  ]);
  for (const [name, bytes] of parts) {
    const words = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    assert.ok(
      words.every((word) => word !== 0 && Number.isFinite(word)),
      `${name} is full of numbers`,
    );
  }
});

async function logitsOf(dir: string, backendName: 'cpu' | 'wasm'): Promise<Buffer> {
  const { backend } = await openBackend(backendName, 1);
  try {
    const options = { dir, id: 'tiny', backend, dtype: 'auto', gatePolicy: 'strict' as const };
    const { model } = await loadModel({ ...options, maxRows: 64, sequences: 2 });
    const state = model.newState();
    const tokens = tokensOf(9, model.vocabSize, 60);
    const [result] = await model.forward([{ state, tokens, logits: 'all' }], { phase: 'prefill' });
    state.release();
    result!.state.release();
    await model.close();
    assert.equal(backend.memory().allocated, 0);
    return Buffer.concat(result!.logits.map(bytesOf));
  } finally {
    await backend.close();
  }
}

test('a checkpoint under either root, wrapped or flat, with parts that are not served, gives the same logits', async (t) => {
  const variants: readonly GlmCheckpointOptions[] = [
    { root: 'model' },
    { root: 'model.language_model', wrapper: true, extras: true },
  ];
  const rows: Buffer[] = [];
  for (const options of variants) {
    const dir = temporaryFolder(t, 'root');
    writeGlmCheckpoint(dir, options);
    rows.push(await logitsOf(dir, 'cpu'));
  }
  assert.ok(rows[0]!.equals(rows[1]!));
});

test('without a tail the first queries of a pool see nothing and give numbers all the same', async (t) => {
  for (const backend of ['cpu', 'wasm'] as const) {
    const dir = temporaryFolder(t, 'tailless');
    writeGlmCheckpoint(dir, { config: tinyGlmConfig({ index_kpool_always_select_tail: false }) });
    const bytes = await logitsOf(dir, backend);
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    assert.ok(values.every(Number.isFinite));
  }
});

test('bfloat16 activations are refused with the reason', async (t) => {
  await assert.rejects(
    openPagedTestModel(t, 'glm5-next-strong', { dtype: 'bf16' }),
    (error) =>
      error instanceof PlumblineError &&
      error.code === 'invalid_option' &&
      /dtype bf16 is not one of auto, f32 for this model: nothing published judges a bfloat16 forward/.test(
        error.message,
      ),
  );
});

test('the model hands over the laws of its own sampler and does not speculate', async (t) => {
  const { model } = await openPagedTestModel(t, 'glm5-next-strong', { dtype: 'auto' });
  assert.equal(model.family, 'glm5_next');
  assert.equal(model.activationLaw, 'f32');
  assert.deepEqual(model.laws, {
    sampler: 'ds4',
    samplingDefaults: { temperature: 1, topP: 1, topK: 0, minP: 0.05 },
    invalidRow: 'ds4-fallback',
    prefixKey: 'text',
    chat: 'argument-pairs',
  });
  assert.equal('speculation' in model, false);
});
