/**
 * Damaged DeepSeek V4 folders, each made from a good one by one act of damage: opening one gives the error of the table
 * below, with a message that names what is wrong, in bounded time, and leaves no descriptor behind. What is the same for
 * every family (folders, headers, shards) is judged in damaged-checkpoints.test.ts.
 */
import assert from 'node:assert/strict';
import { appendFileSync, readdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { PlumblineError, type ErrorCode } from '../../src/errors.js';
import { loadModel } from '../../src/families/load.js';
import { temporaryFolder } from '../support/repository.js';
import { writeJson } from '../support/write-checkpoint.js';
import { deepseekTensors, tinyDeepseekConfig, writeDeepseekCheckpoint } from '../support/write-deepseek.js';
import { encodeSafetensors, int64Bytes, type TensorData } from '../support/write-safetensors.js';

const MODEL = 'model.safetensors';

interface Damage {
  readonly what: string;
  readonly code: ErrorCode;
  /** What the message must say. */
  readonly says: RegExp;
  readonly act: (dir: string) => void;
}

/** Rewrite model.safetensors with other tensors, well formed. */
function replace(change: (tensors: TensorData[]) => TensorData[]) {
  return (dir: string): void => writeFileSync(join(dir, MODEL), encodeSafetensors(change(deepseekTensors())));
}

const without = (name: string) => replace((tensors) => tensors.filter((tensor) => tensor.name !== name));

function alter(name: string, change: (tensor: TensorData) => TensorData | TensorData[]) {
  return replace((tensors) => tensors.flatMap((tensor) => (tensor.name === name ? change(tensor) : [tensor])));
}

const reshape = (name: string, shape: readonly number[]) => alter(name, (tensor) => ({ ...tensor, shape }));

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

const config = (overrides: Record<string, unknown>) => (dir: string) =>
  writeJson(dir, 'config.json', tinyDeepseekConfig(overrides));

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
    act: (dir) => truncateSync(join(dir, MODEL), 30_000),
  },
  {
    what: 'weights with a rest',
    code: 'safetensors_invalid',
    says: /7 bytes after the last tensor/,
    act: (dir) => appendFileSync(join(dir, MODEL), 'a rest.'),
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
    says: /release with float8 weights: tensor "layers\.0\.attn\.wq_b\.weight" is F8_E4M3; float8 .* convert the checkpoint/,
    act: quantise('layers.0.attn.wq_b.weight', 'F8_E4M3', 1),
  },
  {
    what: 'packed float4 experts',
    code: 'config_unsupported',
    says: /release with packed float4 experts: tensor "layers\.2\.ffn\.experts\.1\.w1\.weight" is I8;/,
    act: quantise('layers.2.ffn.experts.1.w1.weight', 'I8', 2),
  },
  {
    what: 'float4 experts by their own type',
    code: 'config_unsupported',
    says: /release with packed float4 experts: tensor "layers\.2\.ffn\.experts\.1\.w1\.weight" is F4;/,
    act: quantise('layers.2.ffn.experts.1.w1.weight', 'F4', 2),
  },
  {
    what: 'a configuration that says it is quantised',
    code: 'config_unsupported',
    says: /quantization_config is .*; float8 \(e4m3\) weights with e8m0 block scales and packed float4 experts/,
    act: config({ quantization_config: { quant_method: 'fp8' } }),
  },
];

/** Open descriptors of this process; 0 where the system does not say. */
function openDescriptors(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}

async function open(dir: string): Promise<void> {
  const backend = new ReferenceBackend();
  const options = { dir, id: 'damaged', backend, dtype: 'auto', gatePolicy: 'strict' as const };
  try {
    const { model } = await loadModel({ ...options, maxRows: 4, sequences: 1 });
    await model.close();
  } finally {
    assert.equal(backend.memory().allocated, 0, 'all memory is given back');
  }
}

describe('a damaged DeepSeek V4 folder is refused by name', () => {
  for (const { what, code, says, act } of DAMAGES) {
    test(what, async (t) => {
      const dir = temporaryFolder(t, 'damaged');
      writeDeepseekCheckpoint(dir);
      act(dir);
      const before = openDescriptors();
      const started = performance.now();
      await assert.rejects(open(dir), (error) => {
        assert.ok(error instanceof PlumblineError, String(error));
        assert.equal(error.code, code, error.message);
        assert.match(error.message, says);
        assert.ok(error.message.length < 600, 'the message is short');
        return true;
      });
      assert.ok(performance.now() - started < 5000, 'it was found in bounded time');
      assert.equal(openDescriptors(), before, 'all descriptors are closed');
    });
  }
});

test('the undamaged folder opens, also with an entry at each end of the range of experts', async (t) => {
  const dir = temporaryFolder(t, 'whole');
  writeDeepseekCheckpoint(dir, { extras: true });
  const before = openDescriptors();
  await open(dir);
  alter(TABLE, (tensor) => ({
    ...tensor,
    bytes: int64Bytes(Array.from({ length: 544 }, (_, i) => (i % 2 === 0 ? 0 : 3))),
  }))(dir);
  await open(dir);
  assert.equal(openDescriptors(), before);
});
