import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { GLM_GOLDEN_CASES, goldenFolder } from '../../../test/support/golden.js';
import { temporaryFolder } from '../../../test/support/repository.js';
import { writeGlmCheckpoint, type GlmCheckpointOptions } from '../../../test/support/write-glm.js';
import { openCheckpoint } from '../../weights/checkpoint.js';
import type { TensorRef } from '../../weights/tensor.js';
import { readGlmConfig } from './config.js';
import { inventoryGlm, type GlmInventory } from './inventory.js';

function load(t: TestContext, dir: string): GlmInventory {
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  return inventoryGlm(checkpoint, readGlmConfig(dir));
}

function written(t: TestContext, options: GlmCheckpointOptions) {
  const dir = temporaryFolder(t, 'glm');
  const tensors = writeGlmCheckpoint(dir, options);
  return { ...load(t, dir), tensors };
}

/** Every reference of a weight map, found by shape alone. */
function references(value: unknown, found = new Map<string, TensorRef>()): Map<string, TensorRef> {
  if (typeof value !== 'object' || value === null) return found;
  if ('dtype' in value) found.set((value as TensorRef).name, value as TensorRef);
  else for (const child of Object.values(value) as unknown[]) references(child, found);
  return found;
}

for (const options of [
  { root: 'model' },
  { root: 'model.language_model', wrapper: true },
  { root: 'model', dtype: 'F16' },
  { root: 'model', dtype: 'F32' },
] as const) {
  test(`every tensor of the layout is taken, exactly once: ${Object.values(options).join(', ')}`, (t) => {
    const { weights, report, tensors } = written(t, options);
    const taken = references(weights);
    assert.deepEqual([...taken.keys()].sort(), tensors.map(({ name }) => name).sort());
    for (const { name, shape } of tensors) assert.deepEqual(taken.get(name)?.shape, shape);
    assert.equal(
      report.residentBytes,
      tensors.reduce((sum, { bytes }) => sum + bytes.byteLength, 0),
    );
    assert.deepEqual(report.unknownTensors, []);
    assert.deepEqual(report.unservedBytes, { 'draft head': 0, 'vision tower': 0 });
  });
}

test('layers behind the last one and a vision tower are counted as not served', (t) => {
  const { weights, report } = written(t, { root: 'model.language_model', wrapper: true, extras: true });
  assert.deepEqual(report.unservedBytes, { 'draft head': 2 * (16 * 32 + 16), 'vision tower': 2 * 8 * 12 });
  assert.deepEqual(report.unknownTensors, []);
  assert.ok([...references(weights).keys()].every((name) => !name.includes('layers.4.') && !name.includes('visual')));
});

test('a tied checkpoint takes its embedding for the output', (t) => {
  const { weights } = written(t, { tied: true });
  assert.equal(weights.lmHead, weights.embedTokens);
});

test('a layer that shares the choice of another has no indexer', (t) => {
  const { weights } = written(t, {});
  const indexers = weights.layers.map(({ mixer }) => mixer.kind === 'dsa' && mixer.indexer !== undefined);
  assert.deepEqual(indexers, [false, true, false, false]);
});

test('the golden checkpoints hold nothing unknown but a vision tower', (t) => {
  for (const name of GLM_GOLDEN_CASES) {
    const { report } = load(t, goldenFolder(t, name));
    assert.deepEqual(report.unknownTensors, []);
    assert.equal(report.unservedBytes['draft head'], 0);
    assert.deepEqual(report.unusedFiles, ['golden.safetensors']);
  }
});
