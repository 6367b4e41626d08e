import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goldenFolder } from '../../../test/support/golden.js';
import { tinyGlmConfig } from '../../../test/support/write-glm.js';
import { PlumblineError, type ErrorCode } from '../../errors.js';
import { JsonKeys } from '../../weights/json-file.js';
import type { JsonObject } from '../../weights/strict-json.js';
import { parseGlmConfig, readGlmConfig } from './config.js';
import type { GlmConfig } from './config-types.js';

type Json = Record<string, unknown>;

const parseRaw = (config: Json): GlmConfig =>
  parseGlmConfig(new JsonKeys(JSON.parse(JSON.stringify(config)) as JsonObject, 'config.json', ''));
const parse = (overrides: Json = {}): GlmConfig => parseRaw(tinyGlmConfig(overrides));
/** Without the lists of layers, so that the rules for absent ones apply. */
const parseLayers = (layerCount: number, overrides: Json = {}): GlmConfig =>
  parse({
    num_hidden_layers: layerCount,
    layer_types: undefined,
    mlp_layer_types: undefined,
    indexer_types: undefined,
    ...overrides,
  });

function assertRefused(overrides: Json, code: ErrorCode, says: RegExp): void {
  assert.throws(
    () => parse(overrides),
    (error) => {
      assert.ok(error instanceof PlumblineError, String(error));
      assert.equal(error.code, code, error.message);
      assert.match(error.message, says);
      return true;
    },
  );
}

test('a file that names only its type gets every default of the class', () => {
  const config = parseRaw({ model_type: 'glm5_next' });
  const { layerTypes, mlpTypes, indexerTypes, ...rest } = config;
  assert.deepEqual(rest, {
    family: 'glm5_next',
    hiddenSize: 4096,
    vocabSize: 154880,
    layerCount: 45,
    rmsNormEps: 1e-5,
    kda: { heads: 64, headDim: 128, convKernel: 4, decayBound: 5 },
    dsa: { heads: 64, queryRank: 1536, latentDim: 512, keyDim: 256, valueDim: 256 },
    indexer: { heads: 32, headDim: 128, budgetTokens: 2048, poolTokens: 16, tail: true },
    hyperConnections: { streams: 4, eps: 1e-6, iterations: 20 },
    denseWidth: 12288,
    moe: {
      experts: 288,
      expertsPerToken: 8,
      expertWidth: 2048,
      sharedWidth: 2048,
      scaling: 2.5,
      groups: 1,
      groupsKept: 1,
      normTopkProb: true,
    },
    swigluLimit: 10,
    tieWordEmbeddings: false,
    maxPositions: 1048576,
    eosTokenIds: [],
  });
  assert.equal(layerTypes.filter((type) => type === 'kda').length, 34);
  assert.deepEqual(layerTypes.slice(0, 5), ['kda', 'kda', 'kda', 'dsa', 'kda']);
  assert.deepEqual(mlpTypes.slice(0, 4), ['dense', 'dense', 'dense', 'sparse']);
  assert.ok(indexerTypes.every((type) => type === 'full'));
});

test('the golden configurations are read as their authors mean them', (t) => {
  const config = readGlmConfig(goldenFolder(t, 'glm5-next-shared-index'));
  assert.deepEqual(config.layerTypes, ['kda', 'kda', 'dsa', 'dsa', 'kda', 'dsa', 'dsa', 'kda']);
  assert.deepEqual(config.indexerTypes, ['full', 'full', 'full', 'shared', 'full', 'full', 'shared', 'full']);
  assert.deepEqual(config.indexer, { heads: 16, headDim: 16, budgetTokens: 24, poolTokens: 8, tail: true });
  assert.deepEqual(config.eosTokenIds, [1]);
  assert.ok(Object.isFrozen(config.moe));
  assert.equal(readGlmConfig(goldenFolder(t, 'glm5-next-strong')).swigluLimit, 0.8);
});

test('an indexer schedule counts all layers, and a pattern stands above it', () => {
  const letters = ({ indexerTypes }: GlmConfig): string =>
    indexerTypes.map((type) => (type === 'full' ? 'F' : 'S')).join('');
  assert.equal(letters(parseLayers(8)), 'FFFFFFFF');
  assert.equal(letters(parseLayers(8, { index_topk_freq: 2 })), 'FFSFSFSF');
  assert.equal(letters(parseLayers(8, { index_topk_freq: 3, index_skip_topk_offset: 4 })), 'FFFFSSFS');
  assert.equal(letters(parseLayers(8, { index_topk_freq: 0 })), 'FFFFFFFF');
  assert.equal(letters(parseLayers(8, { index_topk_pattern: 'FFFFSSFS', index_topk_freq: 2 })), 'FFFFSSFS');
  assert.equal(letters(parseLayers(4, { index_topk_pattern: ['F', 'S', 'full', 'F'] })), 'FSFF');
  assert.equal(letters(parse({ index_topk_pattern: 'FFFF' })), 'FFFS', 'indexer_types stand above the pattern');
});

test('the bound of the decay: absent, null, of an older config, with and without its safe gate', () => {
  const bound = (overrides: Json): number | undefined => parse(overrides).kda.decayBound;
  assert.equal(bound({}), 5);
  assert.equal(bound({ linear_lower_bound: -1.5 }), 1.5);
  assert.equal(bound({ linear_lower_bound: null }), undefined);
  assert.equal(bound({ linear_attn_config: {} }), 5);
  assert.equal(bound({ linear_attn_config: { gate_lower_bound: -3 }, linear_lower_bound: -2 }), 3);
  assert.equal(bound({ linear_attn_config: { gate_lower_bound: null } }), 5);
  assert.equal(bound({ linear_attn_config: { gate_lower_bound: null, safe_gate: false } }), undefined);
  assert.equal(bound({ linear_attn_config: {}, linear_lower_bound: null }), 5);
  const older = { head_dim: 8, num_heads: 3, short_conv_kernel_size: 2 };
  assert.deepEqual(parse({ linear_attn_config: older }).kda, { heads: 3, headDim: 8, convKernel: 2, decayBound: 5 });
});

test('what the forward pass does not do is refused by name', () => {
  assertRefused({ model_type: 'glm4' }, 'config_unsupported', /model_type is "glm4"; only glm5_next, glm5_next_text/);
  assertRefused({ hidden_act: 'gelu' }, 'config_unsupported', /hidden_act is "gelu"; only silu/);
  assertRefused({ attention_bias: true }, 'config_unsupported', /attention_bias is true/);
  assertRefused({ qk_rope_head_dim: 64 }, 'config_unsupported', /qk_rope_head_dim is 64; .* only 0 is known/);
  assertRefused({ num_key_value_heads: 1 }, 'config_unsupported', /num_key_value_heads is 1; only as many as/);
  const layers = ['linear_attention', 'sliding_attention', 'linear_attention', 'full_attention'];
  assertRefused({ layer_types: layers }, 'config_unsupported', /layer_types\[1\] is "sliding_attention"/);
  assertRefused({ mlp_layer_types: [1, 2, 3, 4] }, 'config_unsupported', /mlp_layer_types\[0\] is 1/);
  assertRefused(
    { indexer_types: undefined, index_topk_pattern: 'FFXF' },
    'config_unsupported',
    /index_topk_pattern\[2\] is "X"/,
  );
});

test('numbers that break a rule are refused by name', () => {
  assertRefused({ index_topk: 10 }, 'config_invalid', /index_topk is 10; it must be a multiple of index_kpool \(4\)/);
  assertRefused({ hc_mult: 9 }, 'config_invalid', /hc_mult is 9; it must be an integer from 1 to 8/);
  assertRefused({ hc_sinkhorn_iters: 0 }, 'config_invalid', /hc_sinkhorn_iters is 0/);
  assertRefused({ n_group: 3 }, 'config_invalid', /n_group is 3; it must divide n_routed_experts \(4\)/);
  assertRefused({ topk_group: 2 }, 'config_invalid', /topk_group is 2; it must not be above n_group \(1\)/);
  assertRefused(
    { n_group: 4, num_experts_per_tok: 2 },
    'config_invalid',
    /num_experts_per_tok is 2; it must not be above the 1 experts of the kept groups/,
  );
  assertRefused({ linear_lower_bound: 0 }, 'config_invalid', /linear_lower_bound is 0; it must be negative/);
  assertRefused({ linear_lower_bound: 5 }, 'config_invalid', /linear_lower_bound is 5/);
  assertRefused({ swiglu_limit: 0 }, 'config_invalid', /swiglu_limit is 0/);
  assertRefused({ linear_head_dim: 1024 }, 'config_invalid', /linear_head_dim is 1024/);
  assertRefused({ indexer_types: ['full'] }, 'config_invalid', /indexer_types is 1; it must have num_hidden_layers/);
  assertRefused(
    { indexer_types: ['full', 'shared', 'full', 'full'] },
    'config_invalid',
    /indexer_types is .* must make the first sparse layer, 1, a full one/,
  );
  assertRefused({ eos_token_id: 272 }, 'config_invalid', /eos_token_id is 272/);
});

test('quantised releases are refused by what they are', () => {
  const quantised = (quantization_config: Json, says: RegExp): void =>
    assertRefused({ quantization_config }, 'config_unsupported', says);
  quantised(
    { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128] },
    /an FP8 release .* release with bfloat16 weights/,
  );
  quantised({ quant_method: 'mxfp4' }, /an FP4 release keeps 4-bit float weights/);
  quantised({ quant_method: 'compressed-tensors', format: 'nvfp4-pack-quantized' }, /an FP4 release/);
  quantised({ quant_method: 'gptq', bits: 4 }, /reading quantised weights is missing here/);
});
