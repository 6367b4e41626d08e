/**
 * Damaged DeepSeek V4 folders, each made from a good one by one act of damage: opening one gives the error of the table
 * below, with a message that names what is wrong, in bounded time, and leaves no descriptor behind. What is the same for
 * every family (folders, headers, shards) is judged in damaged-checkpoints.test.ts.
 */
import assert from 'node:assert/strict';
import { appendFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  damageTools,
  MODEL_FILE,
  openDescriptors,
  openFolder,
  testDamages,
  type Damage,
} from '../support/damaged-folders.js';
import { temporaryFolder } from '../support/repository.js';
import { deepseekTensors, tinyDeepseekConfig, writeDeepseekCheckpoint } from '../support/write-deepseek.js';
import { int64Bytes } from '../support/write-safetensors.js';

const { alter, without, reshape, config } = damageTools(deepseekTensors, tinyDeepseekConfig);

/** The same tensor with a byte an element, and the scales that come with it. */
const quantise = (name: string, dtype: string, perByte: number) =>
  alter(name, (tensor) => {
    const [rows = 0, columns = 0] = tensor.shape;
    const bytes = new Uint8Array((rows * columns) / perByte);
    const scale = {
      name: name.replace('.weight', '.scale'),
      dtype: 'F8_E8M0',
      shape: [1, 1],
      bytes: new Uint8Array(1),
    };
    return [{ ...tensor, dtype, shape: [rows, columns / (dtype === 'F4' ? 1 : perByte)], bytes }, scale];
  });

const TABLE = 'layers.1.ffn.gate.tid2eid';

function tableWith(entry: bigint) {
  return alter(TABLE, (tensor) => {
    const entries = new BigInt64Array(tensor.bytes.slice().buffer);
    entries[101] = entry;
    return { ...tensor, bytes: new Uint8Array(entries.buffer) };
  });
}

const DAMAGES: readonly Damage[] = [
  {
    what: 'weights cut inside the data',
    code: 'safetensors_invalid',
    says: /ends at byte \d+ of the data/,
    act: (dir) => truncateSync(join(dir, MODEL_FILE), 30_000),
  },
  {
    what: 'weights with a rest',
    code: 'safetensors_invalid',
    says: /7 bytes after the last tensor/,
    act: (dir) => appendFileSync(join(dir, MODEL_FILE), 'a rest.'),
  },
  {
    what: 'no embedding',
    code: 'tensor_missing',
    says: /no tensor "embed\.weight"/,
    act: without('embed.weight'),
  },
  {
    what: 'no output head',
    code: 'tensor_missing',
    says: /no tensor "head\.weight"/,
    act: without('head.weight'),
  },
  {
    what: 'no sinks',
    code: 'tensor_missing',
    says: /no tensor "layers\.2\.attn\.attn_sink"/,
    act: without('layers.2.attn.attn_sink'),
  },
  {
    what: 'a layer that chooses, without its indexer',
    code: 'tensor_missing',
    says: /no tensor "layers\.3\.attn\.indexer\.weights_proj\.weight"/,
    act: without('layers.3.attn.indexer.weights_proj.weight'),
  },
  {
    what: 'an expert too few',
    code: 'tensor_missing',
    says: /no tensor "layers\.2\.ffn\.experts\.3\.w2\.weight"/,
    act: without('layers.2.ffn.experts.3.w2.weight'),
  },
  {
    what: 'a configuration of one more expert',
    code: 'tensor_mismatch',
    says: /"layers\.0\.ffn\.gate\.weight" has shape \[4, 16\]; the configuration requires \[5, 16\]/,
    act: config({ n_routed_experts: 5 }),
  },
  {
    what: 'no bias where scores choose',
    code: 'tensor_missing',
    says: /no tensor "layers\.2\.ffn\.gate\.bias"/,
    act: without('layers.2.ffn.gate.bias'),
  },
  {
    what: 'no table where the token chooses',
    code: 'tensor_missing',
    says: /no tensor "layers\.1\.ffn\.gate\.tid2eid"/,
    act: without(TABLE),
  },
  {
    what: 'a table of another vocabulary',
    code: 'tensor_mismatch',
    says: /tid2eid" is I64 \[271, 2\]; the configuration requires I64 \[272, 2\]/,
    act: alter(TABLE, (tensor) => ({ ...tensor, shape: [271, 2], bytes: tensor.bytes.subarray(0, 8 * 542) })),
  },
  {
    what: 'a table of 32-bit numbers',
    code: 'tensor_mismatch',
    says: /tid2eid" is I32 \[272, 2\]; the configuration requires I64/,
    act: alter(TABLE, (tensor) => ({ ...tensor, dtype: 'I32', bytes: tensor.bytes.subarray(0, 4 * 544) })),
  },
  {
    what: 'a table that names an expert that is not there',
    code: 'tensor_mismatch',
    says: /tid2eid" holds 4 at \[50, 1\]; the configuration requires experts from 0 to 3/,
    act: tableWith(4n),
  },
  {
    what: 'a table that names a negative expert',
    code: 'tensor_mismatch',
    says: /tid2eid" holds -9223372036854775808 at \[50, 1\]/,
    act: tableWith(-(2n ** 63n)),
  },
  {
    what: 'a mixing matrix of other streams',
    code: 'tensor_mismatch',
    says: /"hc_head_fn" has shape \[2, 32\]; the configuration requires \[3, 48\]/,
    act: config({ hc_mult: 3 }),
  },
  {
    what: 'scales of another number',
    code: 'tensor_mismatch',
    says: /"layers\.0\.hc_attn_scale" has shape \[3, 1\]; the configuration requires \[3\]/,
    act: reshape('layers.0.hc_attn_scale', [3, 1]),
  },
  {
    what: 'a compressor of another rate',
    code: 'tensor_mismatch',
    says: /"layers\.1\.attn\.compressor\.ape" has shape \[4, 16\]; the configuration requires \[8, 16\]/,
    act: config({ compress_rate_csa: 8 }),
  },
  {
    what: 'a compressor without overlap where windows overlap',
    code: 'tensor_mismatch',
    says: /"layers\.1\.attn\.compressor\.wkv\.weight" has shape \[8, 32\]; the configuration requires \[16, 16\]/,
    act: reshape('layers.1.attn.compressor.wkv.weight', [8, 32]),
  },
  {
    what: 'a layer of another kind than its tensors',
    code: 'tensor_missing',
    says: /no tensor "layers\.0\.attn\.compressor\.wkv\.weight"/,
    act: config({ compress_ratios: [128, 4, 128, 4] }),
  },
  {
    what: 'an output projection of other groups',
    code: 'tensor_mismatch',
    says: /"layers\.0\.attn\.wo_a\.weight" has shape \[8, 16\]; the configuration requires \[16, 8\]/,
    act: config({ o_groups: 4 }),
  },
  {
    what: 'a norm of integers',
    code: 'tensor_mismatch',
    says: /"norm\.weight" is I32; BF16, F16 or F32 is required/,
    act: alter('norm.weight', (tensor) => ({ ...tensor, dtype: 'I32' })),
  },
  {
    what: 'a tensor under both of its spellings',
    code: 'tensor_mismatch',
    says: /the same tensor twice, as "layers\.2\.attn\.kv_norm\.weight" and "model\.layers\.2\.attn\.norm\.weight"/,
    act: alter('layers.2.attn.kv_norm.weight', (tensor) => [
      tensor,
      { ...tensor, name: 'model.layers.2.attn.norm.weight' },
    ]),
  },
  {
    what: 'float8 weights with block scales',
    code: 'config_unsupported',
    says: /tensor "layers\.0\.attn\.wq_b\.weight" is F8_E4M3; an FP8 release .* convert this one/,
    act: quantise('layers.0.attn.wq_b.weight', 'F8_E4M3', 1),
  },
  {
    what: 'packed float4 experts',
    code: 'config_unsupported',
    says: /tensor "layers\.2\.ffn\.experts\.1\.w1\.weight" is I8; an FP4 release/,
    act: quantise('layers.2.ffn.experts.1.w1.weight', 'I8', 2),
  },
  {
    what: 'float4 experts by their own type',
    code: 'config_unsupported',
    says: /tensor "layers\.2\.ffn\.experts\.1\.w1\.weight" is F4; an FP4 release/,
    act: quantise('layers.2.ffn.experts.1.w1.weight', 'F4', 2),
  },
  {
    what: 'a configuration that says it is quantised',
    code: 'config_unsupported',
    says: /quantization_config is .*; an FP8 release keeps 8-bit float weights with a scale for every block/,
    act: config({ quantization_config: { quant_method: 'fp8' } }),
  },
];

describe('a damaged DeepSeek V4 folder is refused by name', () => {
  testDamages(DAMAGES, writeDeepseekCheckpoint);
});

test('the undamaged folder opens, also with an entry at each end of the range of experts', async (t) => {
  const dir = temporaryFolder(t, 'whole');
  writeDeepseekCheckpoint(dir, { extras: true });
  const before = openDescriptors();
  await openFolder(dir);
  alter(TABLE, (tensor) => ({
    ...tensor,
    bytes: int64Bytes(Array.from({ length: 544 }, (_, i) => (i % 2 === 0 ? 0 : 3))),
  }))(dir);
  await openFolder(dir);
  assert.equal(openDescriptors(), before);
});
