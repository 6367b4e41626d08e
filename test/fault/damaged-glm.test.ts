/**
 * Damaged GLM folders, each made from a good one by one act of damage: opening one gives the error of the table below, with
 * a message that names what is wrong, in bounded time, and leaves no descriptor behind. What is the same for every family
 * (folders, headers, shards) is judged in damaged-checkpoints.test.ts.
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
import { glmTensors, tinyGlmConfig, writeGlmCheckpoint } from '../support/write-glm.js';

const { alter, without, reshape, config } = damageTools(glmTensors, tinyGlmConfig);

const LAYER = 'model.layers';

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
    what: 'no embedding under either root',
    code: 'tensor_missing',
    says: /no tensor "model\.embed_tokens\.weight" or "model\.language_model\.embed_tokens\.weight"/,
    act: without('model.embed_tokens.weight'),
  },
  {
    what: 'an embedding under both roots',
    code: 'tensor_mismatch',
    says: /embed_tokens\.weight under both model and model\.language_model/,
    act: alter('model.embed_tokens.weight', (tensor) => [
      tensor,
      { ...tensor, name: 'model.language_model.embed_tokens.weight' },
    ]),
  },
  {
    what: 'no output head where nothing is tied',
    code: 'tensor_missing',
    says: /no tensor "lm_head\.weight"/,
    act: without('lm_head.weight'),
  },
  {
    what: 'no decay of a linear layer',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.2\.self_attn\.A_log"/,
    act: without(`${LAYER}.2.self_attn.A_log`),
  },
  {
    what: 'taps of another width',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.self_attn\.q_conv1d\.weight" has shape \[8, 1, 3\]; the configuration requires \[8, 1, 4\]/,
    act: config({ linear_conv_kernel_dim: 4 }),
  },
  {
    what: 'a bias of the gates for each head',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.self_attn\.dt_bias" has shape \[2, 4\]; the configuration requires \[8\]/,
    act: reshape(`${LAYER}.0.self_attn.dt_bias`, [2, 4]),
  },
  {
    what: 'a full layer without its indexer',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.3\.self_attn\.indexer\.wq_b\.weight"/,
    act: config({ indexer_types: ['full', 'full', 'full', 'full'] }),
  },
  {
    what: 'an indexer without the bias of its norm',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.1\.self_attn\.indexer\.k_norm\.bias"/,
    act: without(`${LAYER}.1.self_attn.indexer.k_norm.bias`),
  },
  {
    what: 'a pool of another size',
    code: 'tensor_mismatch',
    says: /"model\.layers\.1\.self_attn\.indexer\.index_kpool_compress_ape" has shape \[4, 4\]; .* requires \[8, 4\]/,
    act: config({ index_kpool: 8 }),
  },
  {
    what: 'latent rows of another width',
    code: 'tensor_mismatch',
    says: /"model\.layers\.1\.self_attn\.kv_a_proj_with_mqa\.weight" has shape \[6, 16\]; .* requires \[10, 16\]/,
    act: config({ kv_lora_rank: 10 }),
  },
  {
    what: 'a layer of another kind than its tensors',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.0\.self_attn\.q_a_proj\.weight"/,
    act: config({ layer_types: Array(4).fill('full_attention') }),
  },
  {
    what: 'an expert too few',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.2\.mlp\.experts\.3\.down_proj\.weight"/,
    act: without(`${LAYER}.2.mlp.experts.3.down_proj.weight`),
  },
  {
    what: 'a shared expert of another width',
    code: 'tensor_mismatch',
    says: /"model\.layers\.1\.mlp\.shared_experts\.gate_proj\.weight" has shape \[16, 16\]; .* requires \[24, 16\]/,
    act: config({ n_shared_experts: 3 }),
  },
  {
    what: 'no correction bias',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.3\.mlp\.gate\.e_score_correction_bias"/,
    act: without(`${LAYER}.3.mlp.gate.e_score_correction_bias`),
  },
  {
    what: 'a dense layer where experts are',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.1\.mlp\.gate_proj\.weight"/,
    act: config({ mlp_layer_types: ['dense', 'dense', 'sparse', 'sparse'] }),
  },
  {
    what: 'a mixing matrix of other streams',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.hc_attn_fn" has shape \[8, 32\]; the configuration requires \[15, 48\]/,
    act: config({ hc_mult: 3 }),
  },
  {
    what: 'scales of another number',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.hc_ffn_scale" has shape \[3, 1\]; the configuration requires \[3\]/,
    act: reshape(`${LAYER}.0.hc_ffn_scale`, [3, 1]),
  },
  {
    what: 'a norm of integers',
    code: 'tensor_mismatch',
    says: /"model\.norm\.weight" is I16; BF16, F16 or F32 is required/,
    act: alter('model.norm.weight', (tensor) => ({ ...tensor, dtype: 'I16' })),
  },
  {
    what: 'one layer more than there is',
    code: 'tensor_missing',
    says: /no tensor "model\.layers\.4\.hc_attn_fn"/,
    act: config({
      num_hidden_layers: 5,
      layer_types: ['linear_attention', 'full_attention', 'linear_attention', 'full_attention', 'linear_attention'],
      mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse', 'sparse'],
      indexer_types: ['full', 'full', 'full', 'shared', 'full'],
    }),
  },
  {
    what: 'float8 weights of a configuration that does not say so',
    code: 'config_unsupported',
    says: /tensor "model\.layers\.1\.self_attn\.o_proj\.weight" is F8_E4M3; an FP8 release .* use the release with bfloat16 weights/,
    act: alter(`${LAYER}.1.self_attn.o_proj.weight`, (tensor) => [
      { ...tensor, dtype: 'F8_E4M3', bytes: tensor.bytes.subarray(0, tensor.bytes.length / 2) },
    ]),
  },
  {
    what: 'float4 experts of a configuration that does not say so',
    code: 'config_unsupported',
    says: /experts\.0\.up_proj\.weight" is F4; an FP4 release .* use the release with bfloat16 weights/,
    act: alter(`${LAYER}.1.mlp.experts.0.up_proj.weight`, (tensor) => [
      { ...tensor, dtype: 'F4', bytes: tensor.bytes.subarray(0, tensor.bytes.length / 4) },
    ]),
  },
  {
    what: 'a configuration that says it is an FP8 release',
    code: 'config_unsupported',
    says: /quantization_config is .*; an FP8 release keeps 8-bit float weights with a scale for every block/,
    act: config({ quantization_config: { quant_method: 'fp8', weight_block_size: [128, 128] } }),
  },
];

describe('a damaged GLM folder is refused by name', () => {
  testDamages(DAMAGES, writeGlmCheckpoint);
});

test('the undamaged folder opens, with and without parts that are not served', async (t) => {
  for (const extras of [false, true]) {
    const dir = temporaryFolder(t, 'whole');
    writeGlmCheckpoint(dir, { extras });
    const before = openDescriptors();
    await openFolder(dir);
    assert.equal(openDescriptors(), before);
  }
});
