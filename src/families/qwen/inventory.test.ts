import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { goldenFolder, GOLDEN_CASES } from '../../../test/support/golden.js';
import { EMBEDDED_MODEL, temporaryFolder } from '../../../test/support/repository.js';
import {
  tinyQwen35Config,
  tinyQwen4Config,
  writeCheckpoint,
  type CheckpointOptions,
} from '../../../test/support/write-checkpoint.js';
import type { TensorData } from '../../../test/support/write-safetensors.js';
import { openCheckpoint } from '../../weights/checkpoint.js';
import type { TensorRef, TensorSlice } from '../../weights/tensor.js';
import { readQwenConfig } from './config.js';
import type { QwenConfig } from './config-types.js';
import { inventoryQwen, type QwenInventory } from './inventory.js';
import { ngramTableNames } from './names.js';
import type { ExpertWeights, Qwen4Weights } from './weight-map.js';

interface Loaded extends QwenInventory {
  readonly config: QwenConfig;
  readonly tensors: readonly TensorData[];
  /** Stored bytes of a reference. */
  readonly bytes: (ref: TensorRef | TensorSlice) => Uint8Array;
}

function load(t: TestContext, options: CheckpointOptions = {}): Loaded {
  const dir = temporaryFolder(t, 'inventory');
  const tensors = writeCheckpoint(dir, options);
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  const config = readQwenConfig(dir);
  const bytes = (ref: TensorRef | TensorSlice): Uint8Array => {
    const [tensor, from] = 'tensor' in ref ? [ref.tensor, ref.byteOffset] : [ref, 0];
    const out = new Uint8Array(ref.byteLength);
    checkpoint.source(tensor).read(tensor.byteOffset + from, out);
    return out;
  };
  return { ...inventoryQwen(checkpoint, config), config, tensors, bytes };
}

/** Every reference of a weight map, found by shape alone. */
function references(value: unknown, found = new Map<string, TensorRef>()): Map<string, TensorRef> {
  if (typeof value !== 'object' || value === null) return found;
  if ('byteLength' in value && 'dtype' in value) found.set((value as TensorRef).name, value as TensorRef);
  else for (const child of Object.values(value) as unknown[]) references(child, found);
  return found;
}

const VARIANTS: readonly [string, CheckpointOptions][] = [
  ['qwen4_exp as it is', {}],
  ['stacked experts', { experts: 'stacked' }],
  ['the long root in a wrapper', { root: 'model.language_model', wrapper: true }],
  ['five files', { files: 5 }],
  ['a table in unequal shards', { tableShards: [1, 17, 3, 0, 9, 2, 2, 2, 2, 2, 2, 0] }],
  ['two PLE layers', { config: tinyQwen4Config({ ple_layer_ids: [3, 1] }), tableShards: [5, 0] }],
  ['no stored constants', { storeConstants: false }],
  ['attention biases', { config: tinyQwen4Config({ attention_bias: true }) }],
  ['float16', { dtype: 'F16' }],
  ['float32', { dtype: 'F32', experts: 'stacked' }],
  ['only linear layers', { config: tinyQwen4Config({ full_attention_interval: 9 }) }],
  ['qwen3_5', { config: tinyQwen35Config() }],
  ['qwen3_5 with biases, tied', { config: tinyQwen35Config({ attention_bias: true, tie_word_embeddings: true }) }],
];

for (const [what, options] of VARIANTS) {
  test(`every tensor of the published layout is taken, exactly once: ${what}`, (t) => {
    const { weights, report, tensors } = load(t, options);
    const taken = references(weights);
    const floats = tensors.filter(({ dtype }) => dtype !== 'I64');
    assert.deepEqual([...taken.keys()].sort(), floats.map(({ name }) => name).sort());
    for (const { name, shape, bytes } of floats) {
      assert.deepEqual(taken.get(name)?.shape, shape);
      assert.equal(taken.get(name)?.byteLength, bytes.byteLength);
    }
    assert.deepEqual(report.unknownTensors, []);
    const table = floats
      .filter(({ name }) => name.includes('ngram_embedding'))
      .reduce((sum, { bytes }) => sum + bytes.byteLength, 0);
    const all = tensors.reduce((sum, { bytes }) => sum + bytes.byteLength, 0);
    assert.equal(report.gatheredBytes, table);
    const constants = all - floats.reduce((sum, { bytes }) => sum + bytes.byteLength, 0);
    assert.equal(report.residentBytes, all - table);
    assert.ok(constants < 1000);
  });
}

test('both expert layouts give the same bytes for every expert', (t) => {
  const single = load(t, { experts: 'per-expert' });
  const stacked = load(t, { experts: 'stacked' });
  const experts = ({ weights }: Loaded): ExpertWeights[] =>
    (weights as Qwen4Weights).layers.flatMap(({ mlp }) => mlp.experts);
  assert.equal(experts(single).length, 16);
  experts(single).forEach((expert, i) => {
    const other = experts(stacked)[i] as ExpertWeights;
    for (const part of ['gateProj', 'upProj', 'downProj'] as const) {
      assert.deepEqual(stacked.bytes(other[part]), single.bytes(expert[part]));
      assert.deepEqual(other[part].shape, expert[part].shape);
    }
  });
});

test('the n-gram shards are stacked by number', (t) => {
  const { weights, tensors, bytes } = load(t, { tableShards: Array<number>(13).fill(10) });
  const { table } = (weights as Qwen4Weights).layers[0]?.ple ?? assert.fail();
  assert.deepEqual(
    table.shards.map(({ name }) => /shard_(\d+)/.exec(name)?.[1]),
    Array.from({ length: 13 }, (_, i) => String(i)),
  );
  const written = tensors.filter(({ name }) => name.includes('.shard_'));
  assert.deepEqual(Buffer.concat(table.shards.map(bytes)), Buffer.concat(written.map((tensor) => tensor.bytes)));
});

test('names of shards that lie apart from each other or from a whole table are refused', () => {
  const names = (...list: string[]) => ({ has: (name: string) => list.includes(name), names: () => list });
  const shard = (n: number | string): string => `t.shard_${n}.weight`;
  assert.deepEqual(
    ngramTableNames(names(shard(10), shard(9), ...[0, 1, 2, 3, 4, 5, 6, 7, 8].map(shard)), 't').slice(8),
    [shard(8), shard(9), shard(10)],
  );
  assert.throws(() => ngramTableNames(names(shard(0), shard(2)), 't'), {
    code: 'tensor_missing',
    message: /shard_1\.weight/,
  });
  assert.throws(() => ngramTableNames(names(shard(1)), 't'), { code: 'tensor_missing', message: /shard_0\.weight/ });
  assert.throws(() => ngramTableNames(names(shard('00')), 't'), { code: 'tensor_missing' });
  assert.throws(() => ngramTableNames(names(shard(0), 't.weight'), 't'), { code: 'tensor_mismatch' });
  assert.throws(() => ngramTableNames(names(), 't'), { code: 'tensor_missing', message: /t\.weight.*shard_0/ });
});

test('a tied checkpoint uses its embedding, or its own head where it has one', (t) => {
  const tied = load(t, { config: tinyQwen35Config({ tie_word_embeddings: true }) });
  assert.equal(tied.weights.lmHead, tied.weights.embedTokens);
  const dir = temporaryFolder(t, 'tied');
  writeCheckpoint(dir);
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  const config = { ...readQwenConfig(dir), tieWordEmbeddings: true };
  assert.equal(inventoryQwen(checkpoint, config).weights.lmHead.name, 'lm_head.weight');
});

test('what is known but not served is counted; what is unknown is named', (t) => {
  const { report } = load(t, { extras: true });
  assert.deepEqual(report.unservedBytes, { 'draft head': 16 * 16 * 2, 'vision tower': 8 * 3 * 2 * 2 * 2 });
  assert.deepEqual(report.unknownTensors, []);
  const biased = load(t, { config: tinyQwen35Config({ attention_bias: true }) });
  assert.equal(biased.report.unknownTensors.length, 0);
});

for (const name of GOLDEN_CASES) {
  test(`the golden case ${name} is taken without a rest`, (t) => {
    const dir = goldenFolder(t, name);
    const checkpoint = openCheckpoint(dir);
    t.after(() => checkpoint.close());
    const { report } = inventoryQwen(checkpoint, readQwenConfig(dir));
    assert.deepEqual([report.unknownTensors, report.unmappedTensors], [[], []]);
    assert.deepEqual(report.unusedFiles, ['golden.safetensors']);
  });
}

test('the embedded model is taken without a rest but its draft head', (t) => {
  const checkpoint = openCheckpoint(EMBEDDED_MODEL);
  t.after(() => checkpoint.close());
  const { weights, report } = inventoryQwen(checkpoint, readQwenConfig(EMBEDDED_MODEL));
  assert.equal(weights.root, 'model.language_model');
  assert.deepEqual(report.unknownTensors, []);
  assert.equal(report.unservedBytes['draft head'], 3_061_120);
  assert.equal(report.gatheredBytes, 65920 * 32 * 2);
});
