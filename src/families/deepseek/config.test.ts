import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fixture } from '../../../test/support/repository.js';
import { tinyDeepseekConfig } from '../../../test/support/write-deepseek.js';
import { PlumblineError, type ErrorCode } from '../../errors.js';
import { JsonKeys } from '../../weights/json-file.js';
import type { JsonObject } from '../../weights/strict-json.js';
import { parseDeepseekConfig, readDeepseekConfig } from './config.js';
import type { DeepseekConfig } from './config-types.js';

type Json = Record<string, unknown>;

const SLIDING = 'sliding_attention';
const CHOSEN = 'compressed_sparse_attention';
const ALL = 'heavily_compressed_attention';

const parseRaw = (config: Json): DeepseekConfig =>
  parseDeepseekConfig(new JsonKeys(JSON.parse(JSON.stringify(config)) as JsonObject, 'config.json', ''));
const parse = (overrides: Json = {}): DeepseekConfig => parseRaw(tinyDeepseekConfig(overrides));

test('a file that names only its type gets every default of the class', () => {
  const config = parseRaw({ model_type: 'deepseek_v4' });
  assert.deepEqual(
    { ...config, layerTypes: config.layerTypes.slice(0, 6), mlpTypes: config.mlpTypes.slice(0, 5) },
    {
      family: 'deepseek_v4',
      hiddenSize: 4096,
      vocabSize: 129280,
      layerTypes: [ALL, ALL, ALL, CHOSEN, ALL, CHOSEN],
      mlpTypes: ['hash_moe', 'hash_moe', 'hash_moe', 'moe', 'moe'],
      rmsNormEps: 1e-6,
      hyper: { streams: 4, iterations: 20, eps: 1e-6 },
      attention: {
        heads: 64,
        headDim: 512,
        queryRank: 1024,
        rotaryDim: 64,
        outputGroups: 8,
        outputRank: 1024,
        window: 128,
      },
      rates: { [CHOSEN]: 4, [ALL]: 128 },
      indexer: { heads: 64, headDim: 128, topRows: 512 },
      moe: {
        experts: 256,
        expertsPerToken: 6,
        expertWidth: 2048,
        scoring: 'sqrtsoftplus',
        scaling: 1.5,
        swigluLimit: 10,
      },
      rope: { main: { theta: 10000 }, compress: { theta: 160000 } },
      maxPositions: 1048576,
      eosTokenIds: [1],
    },
  );
  assert.equal(config.layerTypes.length, 43);
  assert.equal(config.mlpTypes.length, 43);
});

test('the golden configurations', () => {
  const strong = readDeepseekConfig(fixture('golden', 'deepseek-v4-strong-iters3'));
  assert.deepEqual(strong.layerTypes, [SLIDING, CHOSEN, ALL, CHOSEN, ALL, CHOSEN]);
  assert.deepEqual(strong.mlpTypes, ['hash_moe', 'hash_moe', 'moe', 'moe', 'moe', 'moe']);
  assert.deepEqual(strong.hyper, { streams: 4, iterations: 3, eps: 1e-2 });
  assert.deepEqual(strong.rates, { [CHOSEN]: 4, [ALL]: 16 });
  assert.equal(strong.attention.rotaryDim, 8);
  assert.equal(strong.moe.swigluLimit, 10);
  assert.equal(readDeepseekConfig(fixture('golden', 'deepseek-v4-strong')).moe.swigluLimit, 0.8);
  assert.deepEqual(strong.rope, {
    main: { theta: 10000 },
    compress: {
      theta: 160000,
      yarn: { factor: 4, originalPositions: 64, betaFast: 32, betaSlow: 1, attentionFactor: 1 },
    },
  });
  const plain = readDeepseekConfig(fixture('golden', 'deepseek-v4-plain-rope'));
  assert.deepEqual(plain.rope, { main: { theta: 10000 }, compress: { theta: 160000 } });
});

test('layer kinds: a list by name wins over ratios, ratios over the pattern; entries beyond the layers do not count', () => {
  const four = [SLIDING, ALL, CHOSEN, SLIDING];
  assert.deepEqual(parse({ layer_types: four }).layerTypes, four);
  assert.deepEqual(parse({ layer_types: [...four, 'whatever'] }).layerTypes, four);
  assert.deepEqual(parse().layerTypes, [SLIDING, CHOSEN, ALL, CHOSEN]);
  assert.deepEqual(parse({ compress_ratios: undefined }).layerTypes, [ALL, ALL, ALL, CHOSEN]);
  assert.deepEqual(parse({ compress_ratios: undefined, num_hidden_layers: 1 }).layerTypes, [ALL]);
});

test('kinds of experts: a list by name wins over the number of layers by table', () => {
  assert.deepEqual(parse().mlpTypes, ['hash_moe', 'hash_moe', 'moe', 'moe']);
  assert.deepEqual(parse({ num_hash_layers: 0 }).mlpTypes, ['moe', 'moe', 'moe', 'moe']);
  const named = ['moe', 'hash_moe', 'moe', 'moe', 'moe'];
  assert.deepEqual(parse({ mlp_layer_types: named }).mlpTypes, named.slice(0, 4));
});

test('rates: the table over the class, single keys over the table', () => {
  const table = { [CHOSEN]: 8, [ALL]: 32 };
  assert.deepEqual(parse({ compress_rate_hca: undefined }).rates, { [CHOSEN]: 4, [ALL]: 128 });
  assert.deepEqual(parse({ compress_rate_hca: undefined, compress_rates: table }).rates, table);
  assert.deepEqual(parse({ compress_rates: table }).rates, { [CHOSEN]: 8, [ALL]: 16 });
  assert.deepEqual(parse({ compress_rate_csa: 2 }).rates, { [CHOSEN]: 2, [ALL]: 16 });
  assert.equal(parse({ layer_types: Array(4).fill(SLIDING) }).indexer, undefined);
});

test('the rotary width: the factor wins over the width, and both have defaults', () => {
  const width = (overrides: Json): number => parse({ head_dim: 16, ...overrides }).attention.rotaryDim;
  assert.equal(width({}), 4);
  assert.equal(width({ partial_rotary_factor: 0.5 }), 8);
  assert.equal(width({ partial_rotary_factor: 0.3 }), 4); // int(4.8)
  assert.equal(width({ qk_rope_head_dim: undefined }), 2); // int(16 * 64 / 512)
});

test('rotary settings: nested, flat, and as published', () => {
  const rope = (overrides: Json) => parse({ rope_theta: 20000, compress_rope_theta: 90000, ...overrides }).rope;
  assert.deepEqual(rope({}), { main: { theta: 20000 }, compress: { theta: 90000 } });
  assert.deepEqual(rope({ rope_parameters: { main: { rope_theta: 5000 }, compress: { rope_theta: 6000 } } }), {
    main: { theta: 5000 },
    compress: { theta: 6000 },
  });
  const published = { type: 'yarn', factor: 16, original_max_position_embeddings: 65536, beta_fast: 32, beta_slow: 1 };
  const yarn = { factor: 16, originalPositions: 65536, betaFast: 32, betaSlow: 1, attentionFactor: 1 };
  assert.deepEqual(rope({ rope_scaling: published }), { main: { theta: 20000 }, compress: { theta: 90000, yarn } });
  // A flat dictionary's own theta is replaced; a main table alone is no nesting.
  assert.deepEqual(rope({ rope_parameters: { rope_type: 'yarn', factor: 2, rope_theta: 7 } }), {
    main: { theta: 20000 },
    compress: { theta: 90000, yarn: { ...yarn, factor: 2, originalPositions: 512 } },
  });
  assert.deepEqual(rope({ rope_parameters: { main: {} } }), { main: { theta: 20000 }, compress: { theta: 90000 } });
  const written = rope({ rope_scaling: { ...published, attention_factor: 1.25, truncate: false } });
  assert.equal(written.compress.yarn?.attentionFactor, 1.25);
});

test('norm_topk_prob and the extra layers change nothing; several ids may end a turn', () => {
  const plain = parse();
  assert.deepEqual(parse({ norm_topk_prob: false, num_nextn_predict_layers: 3 }), plain);
  assert.deepEqual(parse({ eos_token_id: [7, 1, 7] }).eosTokenIds, [7, 1]);
  assert.equal(parse({ scoring_func: 'sigmoid' }).moe.scoring, 'sigmoid');
  assert.ok(Object.isFrozen(plain.rope.main));
});

const REFUSED: readonly (readonly [Json, ErrorCode, RegExp])[] = [
  [{ model_type: 'deepseek_v3' }, 'config_unsupported', /model_type is "deepseek_v3"; only deepseek_v4/],
  [
    { quantization_config: { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128] } },
    'config_unsupported',
    /quantization_config is .*; an FP8 release keeps 8-bit float weights .* is missing here/,
  ],
  [{ hidden_act: 'gelu' }, 'config_unsupported', /hidden_act is "gelu"; only silu/],
  [{ attention_bias: true }, 'config_unsupported', /attention_bias is true; only false/],
  [{ mlp_bias: true }, 'config_unsupported', /mlp_bias is true/],
  [{ tie_word_embeddings: true }, 'config_unsupported', /tie_word_embeddings is true/],
  [{ num_key_value_heads: 2 }, 'config_unsupported', /num_key_value_heads is 2; only 1/],
  [{ n_shared_experts: 2 }, 'config_unsupported', /n_shared_experts is 2; only 1/],
  [{ n_shared_experts: 0 }, 'config_unsupported', /n_shared_experts is 0/],
  [{ scoring_func: 'softmax' }, 'config_unsupported', /scoring_func is "softmax"; only sqrtsoftplus and sigmoid/],
  [{ layer_types: [SLIDING] }, 'config_invalid', /layer_types is 1; it must have an entry for each .* \(4\)/],
  [{ layer_types: [SLIDING, ALL, 'dense', ALL] }, 'config_unsupported', /layer_types\[2\] is "dense"; only/],
  [{ compress_ratios: [0, 4, 64, 4] }, 'config_unsupported', /compress_ratios\[2\] is 64; only 0, 4 and 128/],
  [{ compress_ratios: [0, 4] }, 'config_invalid', /compress_ratios is 2; it must have/],
  [{ mlp_layer_types: ['moe', 'moe', 'moe', 'dense'] }, 'config_unsupported', /mlp_layer_types\[3\] is "dense"/],
  [{ compress_rate_csa: 0 }, 'config_invalid', /compress_rate_csa is 0; it must be an integer from 1/],
  [{ compress_rates: { [CHOSEN]: 0.5 } }, 'config_invalid', /compress_rates\.compressed_sparse_attention is 0\.5/],
  [{ compress_rate_csa: 127, compress_rate_hca: 131 }, 'config_invalid', /compress_rates is 16637; .*common multiple/],
  [{ o_groups: 3 }, 'config_invalid', /o_groups is 3; it must divide num_attention_heads \* head_dim \(32\)/],
  [{ qk_rope_head_dim: 3 }, 'config_invalid', /qk_rope_head_dim is 3; it must give an even rotary width/],
  [{ partial_rotary_factor: 0.1 }, 'config_invalid', /partial_rotary_factor is 0\.1; .* gives 0/],
  [{ index_head_dim: 2 }, 'config_invalid', /index_head_dim is 2; it must not be below the rotary width .* \(4\)/],
  [{ index_n_heads: 65 }, 'config_invalid', /index_n_heads is 65; it must be an integer from 1 to 64/],
  [
    { num_experts_per_tok: 5 },
    'config_invalid',
    /num_experts_per_tok is 5; it must not be above n_routed_experts \(4\)/,
  ],
  [{ hc_mult: 9 }, 'config_invalid', /hc_mult is 9; it must be an integer from 1 to 8/],
  [{ hc_sinkhorn_iters: 0 }, 'config_invalid', /hc_sinkhorn_iters is 0/],
  [{ swiglu_limit: 0 }, 'config_invalid', /swiglu_limit is 0; it must be a number above 0/],
  [{ routed_scaling_factor: -1 }, 'config_invalid', /routed_scaling_factor is -1/],
  [{ rope_scaling: { type: 'linear' } }, 'config_unsupported', /rope_scaling\.type is "linear"; only default and yarn/],
  [{ rope_scaling: { rope_type: 'yarn' } }, 'config_invalid', /rope_scaling\.factor is missing/],
  [
    { rope_parameters: { main: { rope_type: 'yarn', factor: 2 }, compress: {} } },
    'config_unsupported',
    /rope_parameters\.main\.rope_type is "yarn"; only default is known for the main table/,
  ],
  [{ max_position_embeddings: 2 ** 25 }, 'config_invalid', /max_position_embeddings is 33554432/],
  [{ eos_token_id: 272 }, 'config_invalid', /eos_token_id is 272/],
];

for (const [overrides, code, says] of REFUSED) {
  test(`refused: ${JSON.stringify(overrides)}`, () => {
    assert.throws(
      () => parse(overrides),
      (error) => {
        assert.ok(error instanceof PlumblineError);
        assert.equal(error.code, code, error.message);
        assert.match(error.message, says);
        return true;
      },
    );
  });
}
