import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMBEDDED_MODEL, fixture } from '../../../test/support/repository.js';
import { tinyQwen35Config, tinyQwen4Config } from '../../../test/support/write-checkpoint.js';
import { PlumblineError, type ErrorCode } from '../../errors.js';
import { JsonKeys } from '../../weights/json-file.js';
import type { JsonObject } from '../../weights/strict-json.js';
import { parseQwenConfig, readQwenConfig } from './config.js';
import type { Qwen35Config, Qwen4Config, QwenConfig } from './config-types.js';

type Json = Record<string, unknown>;

function parse(config: Json): QwenConfig {
  return parseQwenConfig(new JsonKeys(config as JsonObject, 'config.json', ''));
}

const parse4 = (overrides: Json = {}): Qwen4Config => parse(tinyQwen4Config(overrides)) as Qwen4Config;
const parse35 = (overrides: Json = {}): Qwen35Config => parse(tinyQwen35Config(overrides)) as Qwen35Config;

/** A config without some keys. */
function without(config: Json, ...keys: string[]): Json {
  return Object.fromEntries(Object.entries(config).filter(([key]) => !keys.includes(key)));
}

test('the shipped Flash Next configuration', () => {
  const config = readQwenConfig(fixture('qwen', 'flash-next')) as Qwen4Config;
  assert.equal(config.family, 'qwen4_exp');
  assert.deepEqual([config.vocabSize, config.hiddenSize, config.layerCount], [248320, 2560, 48]);
  assert.equal(config.layerTypes.filter((type) => type === 'attention').length, 12);
  assert.equal(config.layerTypes[3], 'attention');
  assert.deepEqual(config.linearAttention, {
    keyHeads: 16,
    valueHeads: 48,
    keyHeadDim: 128,
    valueHeadDim: 128,
    convKernel: 4,
    convChannels: 10240,
    outputGate: 'sigmoid',
  });
  assert.deepEqual(config.attention, {
    heads: 24,
    kvHeads: 2,
    headDim: 256,
    rotaryDim: 64,
    ropeTheta: 1e7,
    mropeSection: [11, 11, 10],
    bias: false,
  });
  assert.deepEqual(config.indexer, { heads: 4, headDim: 128, blockTokens: 4, budgetTokens: 2048 });
  assert.deepEqual(config.moe, {
    experts: 512,
    expertsPerToken: 10,
    expertWidth: 640,
    sharedExpertWidth: 640,
    normTopkProb: true,
  });
  assert.deepEqual(config.hyperConnections, { streams: 4, rank: 320 });
  assert.deepEqual(config.ple, {
    layers: [1],
    embedDim: 2560,
    convKernel: 4,
    ngramSize: 3,
    headsPerNgram: 8,
    heads: 16,
    rowWidth: 160,
    tableSizeBase: 20_000_000,
    tableRowDivisor: 128,
    seed: 1234,
    eosTokenId: 248044,
  });
  assert.deepEqual([config.maxPositions, config.mtpLayerCount], [262144, 1]);
});

test('the golden configurations and the embedded model parse', () => {
  const tiny = readQwenConfig(fixture('golden', 'qwen4-exp-tiny')) as Qwen4Config;
  assert.deepEqual(tiny.ple?.layers, [0, 5]);
  assert.deepEqual(tiny.eosTokenIds, [1]);
  const dense = readQwenConfig(fixture('golden', 'qwen3.5-dense-tiny')) as Qwen35Config;
  assert.deepEqual([dense.mlpWidth, dense.attention.rotaryDim, dense.tieWordEmbeddings], [96, 8, true]);
  const embedded = readQwenConfig(EMBEDDED_MODEL) as Qwen4Config;
  assert.deepEqual(embedded.eosTokenIds, [4089, 4091]);
  assert.equal(embedded.ple?.eosTokenId, 4089);
});

test('absent keys take the defaults of the class', () => {
  const bare = without(
    tinyQwen4Config({ hidden_size: 64, ple_layer_ids: [1] }),
    ...['head_dim', 'rms_norm_eps', 'tie_word_embeddings', 'max_position_embeddings', 'rope_parameters', 'hc_count'],
    ...['output_gate_type', 'ple_embed_dim', 'ple_conv_kernel_size', 'ngram_size', 'heads_per_ngram', 'seed'],
    ...['ngram_vocab_size_base', 'make_ngram_vocab_size_divisible_by', 'linear_conv_kernel_dim', 'indexer_head_dim'],
  );
  const config = parse({ ...bare, indexer_head_dim: 256 }) as Qwen4Config;
  assert.deepEqual(config.attention, {
    heads: 2,
    kvHeads: 1,
    headDim: 256,
    rotaryDim: 256,
    ropeTheta: 10000,
    mropeSection: [11, 11, 10],
    bias: false,
  });
  assert.equal(config.rmsNormEps, 1e-6);
  assert.equal(config.maxPositions, 32768);
  assert.equal(config.hyperConnections.streams, 4);
  assert.equal(config.linearAttention.outputGate, 'silu');
  assert.equal(config.linearAttention.convKernel, 4);
  assert.equal(config.tieWordEmbeddings, false);
  assert.equal(config.mtpLayerCount, 0);
  const { ple } = config;
  assert.deepEqual([ple?.embedDim, ple?.convKernel, ple?.ngramSize, ple?.headsPerNgram], [64, 4, 3, 8]);
  assert.deepEqual([ple?.tableSizeBase, ple?.tableRowDivisor, ple?.seed], [20_000_000, 128, 1234]);
});

test('layer types come from the list, else from the interval', () => {
  assert.deepEqual(parse4().layerTypes, ['linear_attention', 'linear_attention', 'linear_attention', 'attention']);
  assert.deepEqual(
    parse4({ full_attention_interval: 2 }).layerTypes.map((type) => type === 'attention'),
    [false, true, false, true],
  );
  const listed = ['linear_attention', 'qwen_sparse_attention', 'full_attention', 'linear_attention'];
  assert.deepEqual(parse4({ layer_types: listed }).layerTypes, [
    'linear_attention',
    'attention',
    'attention',
    'linear_attention',
  ]);
});

test('a model without attention layers needs no indexer', () => {
  const config = without(tinyQwen4Config({ full_attention_interval: 5 }), 'indexer_kv_heads', 'indexer_budget');
  assert.equal((parse(config) as Qwen4Config).indexer, undefined);
});

test('the partial rotary factor defaults by family', () => {
  const rope = { rope_type: 'default', rope_theta: 1e6 };
  assert.equal(parse35({ rope_parameters: rope, head_dim: 32 }).attention.rotaryDim, 8);
  assert.equal(parse4({ rope_parameters: rope }).attention.rotaryDim, 8);
  assert.equal(
    parse4({ rope_parameters: null, rope_theta: 5000, partial_rotary_factor: 0.5 }).attention.ropeTheta,
    5000,
  );
});

test('qwen3_5 always gates with silu', () => {
  assert.equal(parse35({ output_gate_type: 'sigmoid' }).linearAttention.outputGate, 'silu');
});

test('PLE ids count from one, are sorted, and are counted once', () => {
  assert.deepEqual(parse4({ ple_layer_ids: [3, 1, 3] }).ple?.layers, [0, 2]);
  assert.equal(parse4({ ple_layer_ids: [] }).ple, undefined);
  assert.equal(parse4({ ple_layer_ids: null, eos_token_id: null }).ple, undefined);
});

test('PLE falls back to the first eos of the text config; every eos ends a turn', () => {
  const config = parse4({ eos_token_id: [7, 3, 7] });
  assert.equal(config.ple?.eosTokenId, 7);
  assert.deepEqual(config.eosTokenIds, [7, 3]);
});

test('a wrapper gives its text config, with its own eos ids on top', () => {
  const config = parse({
    model_type: 'qwen4_exp',
    eos_token_id: [5, 1],
    tie_word_embeddings: true,
    text_config: without(tinyQwen4Config(), 'tie_word_embeddings'),
  });
  assert.deepEqual(config.eosTokenIds, [1, 5]);
  assert.equal(config.tieWordEmbeddings, true);
});

test('a configuration cannot be changed', () => {
  const config = parse4();
  assert.ok(
    Object.isFrozen(config) && Object.isFrozen(config.ple?.layers) && Object.isFrozen(config.attention.mropeSection),
  );
});

/** [what is wrong, config, what the message must name, code when it is not config_invalid] */
const REFUSALS: readonly [string, Json, RegExp, ErrorCode?][] = [
  ['an unknown model type', { model_type: 'llama' }, /model_type is "llama"; only qwen4_exp, /, 'config_unsupported'],
  ['no model type', {}, /model_type is missing/],
  ['a wrapper without text config', { model_type: 'qwen4_exp' }, /text_config is missing/],
  [
    'a text config that is no object',
    { model_type: 'qwen4_exp', text_config: [] },
    /text_config is \[\]; it must be an object/,
  ],
  [
    'a text config of another family',
    { model_type: 'qwen4_exp', text_config: tinyQwen35Config() },
    /text_config\.model_type is "qwen3_5_text"/,
    'config_unsupported',
  ],
  [
    'quantised weights',
    tinyQwen4Config({ quantization_config: { bits: 4 } }),
    /quantization_config .* not supported/,
    'config_unsupported',
  ],
  [
    'value heads that do not divide',
    tinyQwen4Config({ linear_num_key_heads: 3 }),
    /linear_num_value_heads is 2; it must be a multiple of linear_num_key_heads \(3\)/,
  ],
  [
    'query heads that do not divide',
    tinyQwen4Config({ num_key_value_heads: 3 }),
    /num_attention_heads is 2; .*num_key_value_heads \(3\)/,
  ],
  ['two indexer key heads', tinyQwen4Config({ indexer_kv_heads: 2 }), /indexer_kv_heads is 2/, 'config_unsupported'],
  [
    'a budget of broken blocks',
    tinyQwen4Config({ indexer_budget: 10 }),
    /indexer_budget is 10; .*indexer_compress_ratio \(4\)/,
  ],
  [
    'an indexer head narrower than the rotation',
    tinyQwen4Config({ indexer_head_dim: 2 }),
    /indexer_head_dim is 2; .*\(4\)/,
  ],
  ['an n-gram width that does not divide', tinyQwen4Config({ ple_embed_dim: 18 }), /ple_embed_dim is 18; .*\(4\)/],
  [
    'a PLE id of zero',
    tinyQwen4Config({ ple_layer_ids: [0] }),
    /ple_layer_ids\[0\] is 0; it must be an integer from 1 to 4/,
  ],
  ['a PLE id beyond the layers', tinyQwen4Config({ ple_layer_ids: [1, 5] }), /ple_layer_ids\[1\] is 5/],
  [
    'a PLE id on an attention layer',
    tinyQwen4Config({ ple_layer_ids: [4] }),
    /ple_layer_ids is \[4\]; .*layer 4 is none/,
  ],
  ['PLE without an eos', tinyQwen4Config({ eos_token_id: null }), /eos_token_id is null; it must name an id/],
  [
    'PLE with an eos in the wrapper only',
    { model_type: 'qwen4_exp', eos_token_id: 1, text_config: tinyQwen4Config({ eos_token_id: null }) },
    /text_config\.eos_token_id/,
  ],
  ['one residual stream', tinyQwen4Config({ hc_count: 1 }), /hc_count is 1; it must be an integer from 2 to/],
  [
    'a scaled rope',
    tinyQwen4Config({ rope_parameters: { rope_type: 'yarn' } }),
    /rope_parameters\.rope_type is "yarn"/,
    'config_unsupported',
  ],
  [
    'a scaled rope in the old place',
    tinyQwen4Config({ rope_scaling: { type: 'linear', factor: 2 } }),
    /rope_scaling\.type/,
    'config_unsupported',
  ],
  ['an unknown activation', tinyQwen4Config({ hidden_act: 'gelu' }), /hidden_act is "gelu"/, 'config_unsupported'],
  [
    'an unknown output gate',
    tinyQwen4Config({ output_gate_type: 'tanh' }),
    /output_gate_type is "tanh"/,
    'config_unsupported',
  ],
  [
    'attention without its gate',
    tinyQwen35Config({ attn_output_gate: false }),
    /attn_output_gate is false/,
    'config_unsupported',
  ],
  [
    'an unknown layer type',
    tinyQwen4Config({ layer_types: ['linear_attention', 'mamba', 'linear_attention', 'full_attention'] }),
    /layer_types\[1\] is "mamba"/,
    'config_unsupported',
  ],
  [
    'sparse attention in the dense family',
    tinyQwen35Config({ layer_types: Array(4).fill('qwen_sparse_attention') }),
    /layer_types\[0\]/,
    'config_unsupported',
  ],
  [
    'too few layer types',
    tinyQwen4Config({ layer_types: ['linear_attention'] }),
    /layer_types is 1; .*num_hidden_layers \(4\)/,
  ],
  [
    'layer types that are no list',
    tinyQwen4Config({ layer_types: 'linear_attention' }),
    /layer_types .* must be a list/,
  ],
  [
    'more experts a token than experts',
    tinyQwen4Config({ num_experts_per_tok: 5 }),
    /num_experts_per_tok is 5; .*num_experts \(4\)/,
  ],
  [
    'an odd rotary width',
    tinyQwen4Config({ head_dim: 6, rope_parameters: { partial_rotary_factor: 0.5 } }),
    /partial_rotary_factor is 0\.5; .*gives 3/,
  ],
  [
    'a rotary factor above one',
    tinyQwen4Config({ rope_parameters: { partial_rotary_factor: 1.5 } }),
    /rope_parameters\.partial_rotary_factor is 1\.5/,
  ],
  [
    'a section of two',
    tinyQwen4Config({ rope_parameters: { mrope_section: [1, 1] } }),
    /mrope_section .* three entries/,
  ],
  ['no vocabulary', without(tinyQwen4Config(), 'vocab_size'), /vocab_size is missing/],
  ['no experts', without(tinyQwen4Config(), 'num_experts'), /num_experts is missing/],
  ['no dense width', without(tinyQwen35Config(), 'intermediate_size'), /intermediate_size is missing/],
  ['a fractional size', tinyQwen4Config({ hidden_size: 16.5 }), /hidden_size is 16\.5; it must be an integer/],
  ['a negative size', tinyQwen4Config({ num_hidden_layers: -4 }), /num_hidden_layers is -4/],
  ['a size of zero', tinyQwen4Config({ head_dim: 0 }), /head_dim is 0/],
  [
    'an absurd size',
    tinyQwen4Config({ hidden_size: 1e12 }),
    /hidden_size is 1000000000000; it must be an integer from 1 to/,
  ],
  ['a size beyond all integers', tinyQwen4Config({ vocab_size: 1e300 }), /vocab_size is 1e\+300/],
  ['a size in a string', tinyQwen4Config({ vocab_size: '272' }), /vocab_size is "272"/],
  [
    'a table that cannot be addressed',
    tinyQwen4Config({ ngram_vocab_size_base: 2 ** 30 }),
    /ngram_vocab_size_base is 1073741824; it times 4 heads/,
  ],
  [
    'an eos outside the vocabulary',
    tinyQwen4Config({ eos_token_id: 272 }),
    /eos_token_id is 272; it must be an integer from 0 to 271/,
  ],
  ['an epsilon of zero', tinyQwen4Config({ rms_norm_eps: 0 }), /rms_norm_eps is 0; it must be a number above 0/],
  [
    'a flag in a string',
    tinyQwen4Config({ norm_topk_prob: 'true' }),
    /norm_topk_prob is "true"; it must be true or false/,
  ],
];

for (const [what, config, names, code] of REFUSALS) {
  test(`refused: ${what}`, () => {
    assert.throws(
      () => parse(config),
      (error) => {
        assert.ok(error instanceof PlumblineError, String(error));
        assert.equal(error.code, code ?? 'config_invalid');
        assert.match(error.message, names);
        assert.match(error.message, /^config\.json/);
        return true;
      },
    );
  });
}
