import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { DEEPSEEK_GOLDEN_CASES, goldenFolder } from '../../../test/support/golden.js';
import { temporaryFolder } from '../../../test/support/repository.js';
import { writeDeepseekCheckpoint, type DeepseekCheckpointOptions } from '../../../test/support/write-deepseek.js';
import { openCheckpoint } from '../../weights/checkpoint.js';
import type { TensorRef } from '../../weights/tensor.js';
import { readDeepseekConfig } from './config.js';
import { inventoryDeepseek, type DeepseekInventory } from './inventory.js';
import { spelled, spellings } from './names.js';

function load(t: TestContext, dir: string): DeepseekInventory {
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  return inventoryDeepseek(checkpoint, readDeepseekConfig(dir));
}

function written(t: TestContext, options: DeepseekCheckpointOptions) {
  const dir = temporaryFolder(t, 'deepseek');
  const tensors = writeDeepseekCheckpoint(dir, options);
  return { ...load(t, dir), tensors };
}

/** Every reference of a weight map, found by shape alone. */
function references(value: unknown, found = new Map<string, TensorRef>()): Map<string, TensorRef> {
  if (typeof value !== 'object' || value === null || value instanceof Int32Array) return found;
  if ('dtype' in value) found.set((value as TensorRef).name, value as TensorRef);
  else for (const child of Object.values(value) as unknown[]) references(child, found);
  return found;
}

for (const options of [
  { spelling: 'published' },
  { spelling: 'rewritten' },
  { spelling: 'rewritten', dtype: 'F16' },
  { spelling: 'published', dtype: 'F32' },
] as const) {
  test(`every tensor of the layout is taken, exactly once: ${Object.values(options).join(', ')}`, (t) => {
    const { weights, report, tensors } = written(t, options);
    const taken = references(weights);
    const floats = tensors.filter(({ dtype }) => dtype !== 'I64');
    assert.deepEqual([...taken.keys()].sort(), floats.map(({ name }) => name).sort());
    for (const { name, shape } of floats) assert.deepEqual(taken.get(name)?.shape, shape);
    assert.equal(
      report.residentBytes,
      tensors.reduce((sum, { bytes }) => sum + bytes.byteLength, 0),
    );
    assert.deepEqual(report.unknownTensors, []);
    assert.deepEqual(report.unservedBytes, { 'extra prediction layers (mtp)': 0 });
  });
}

test('both spellings give the same map', (t) => {
  const OF_THE_FILE = ['name', 'file', 'byteOffset'];
  const shapes = (options: DeepseekCheckpointOptions): string =>
    JSON.stringify(written(t, options).weights, (key, value: unknown) => (OF_THE_FILE.includes(key) ? '' : value));
  assert.equal(shapes({ spelling: 'published' }), shapes({ spelling: 'rewritten' }));
});

test('an expert table becomes 32-bit numbers, the rest of the layers has a bias', (t) => {
  const { weights } = written(t, {});
  assert.deepEqual(
    weights.layers.map(({ ffn }) => [ffn.expertsOfToken?.length, ffn.bias?.shape[0]]),
    [
      [544, undefined],
      [544, undefined],
      [undefined, 4],
      [undefined, 4],
    ],
  );
  assert.deepEqual([...weights.layers[0]!.ffn.expertsOfToken!.subarray(0, 6)], [0, 1, 1, 3, 2, 1]);
});

test('extra prediction layers are counted, whatever their dtypes, and not served', (t) => {
  const { report, weights } = written(t, { extras: true });
  assert.deepEqual(report.unservedBytes, { 'extra prediction layers (mtp)': 2 * 16 * 16 + 8 * 16 });
  assert.ok([...references(weights).keys()].every((name) => !name.includes('mtp')));
});

test('the golden checkpoints are taken whole', (t) => {
  for (const name of DEEPSEEK_GOLDEN_CASES) {
    const { report } = load(t, goldenFolder(t, name));
    assert.deepEqual([report.unknownTensors, report.unmappedTensors], [[], []], name);
  }
});

test('names of the two spellings', () => {
  const rewritten = (name: string): readonly string[] => spellings(name).slice(1);
  assert.deepEqual(rewritten('embed.weight'), ['model.embed_tokens.weight']);
  assert.deepEqual(rewritten('head.weight'), []);
  assert.deepEqual(rewritten('norm.weight'), ['model.norm.weight']);
  assert.deepEqual(rewritten('hc_head_fn'), ['model.hc_head.hc_fn']);
  assert.deepEqual(rewritten('layers.3.attn.kv_norm.weight'), ['model.layers.3.attn.norm.weight']);
  assert.deepEqual(rewritten('layers.3.attn.compressor.norm.weight'), ['model.layers.3.attn.compressor.norm.weight']);
  assert.deepEqual(rewritten('layers.0.hc_attn_base'), ['model.layers.0.hc_attn_base']);
  assert.throws(
    () => spelled(new Set(['norm.weight', 'model.norm.weight']), 'norm.weight'),
    /the same tensor twice, as "norm\.weight" and "model\.norm\.weight"/,
  );
});
