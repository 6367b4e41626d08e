/**
 * config.json of a Qwen checkpoint: defaults, derived sizes, and every rule that decides whether the model can be run.
 *
 * The file is either the text config itself (`model_type` ends in `_text`) or a wrapper whose `text_config` holds the
 * keys. Absent keys take the defaults of the class that wrote the file; sizes without a default must be given.
 *
 * Invariants: what leaves here has passed all rules, so nothing downstream checks a size again; every refusal names the
 * key, its value and the rule. Bounds are far above any model and keep all products inside safe integers.
 */
import { join } from 'node:path';
import { tokenIdList } from '../../weights/generation-config.js';
import { readJsonFile, type JsonKeys } from '../../weights/json-file.js';
import { deepFreeze } from '../deep-freeze.js';
import type {
  AttentionConfig,
  GateActivation,
  IndexerConfig,
  LinearAttentionConfig,
  MoeConfig,
  PleConfig,
  Qwen35Config,
  Qwen4Config,
  QwenConfig,
  QwenFamily,
  QwenLayerType,
} from './config-types.js';
import { MAX_TABLE_ROWS } from './ngram-constants.js';

const FAMILIES: ReadonlyMap<string, QwenFamily> = new Map([
  ['qwen4_exp', 'qwen4_exp'],
  ['qwen4_exp_text', 'qwen4_exp'],
  ['qwen3_5', 'qwen3_5'],
  ['qwen3_5_text', 'qwen3_5'],
]);

const LAYER_TYPES: Readonly<Record<QwenFamily, ReadonlyMap<string, QwenLayerType>>> = {
  qwen4_exp: new Map([
    ['linear_attention', 'linear_attention'],
    ['full_attention', 'attention'],
    ['qwen_sparse_attention', 'attention'],
  ]),
  qwen3_5: new Map([
    ['linear_attention', 'linear_attention'],
    ['full_attention', 'attention'],
  ]),
};

const WIDTH = { max: 2 ** 20 };
const HEADS = { max: 2 ** 12 };
const HEAD_DIM = { max: 2 ** 12 };
const KERNEL = { max: 64 };
/** Positions are float32 on their way into the rotary angle: beyond 2^24 they would no longer be integers. */
const POSITIONS = { max: 2 ** 24 };

/** Whether this module reads configs of the given `model_type`. */
export function isQwenModelType(modelType: string): boolean {
  return FAMILIES.has(modelType);
}

/**
 * Read and check config.json of a folder.
 *
 * @throws checkpoint_not_found, checkpoint_unreadable, config_invalid, config_unsupported
 */
export function readQwenConfig(dir: string): QwenConfig {
  return parseQwenConfig(readJsonFile(join(dir, 'config.json')));
}

/** @throws config_invalid, config_unsupported: naming the key, its value and the rule */
export function parseQwenConfig(root: JsonKeys): QwenConfig {
  const { family, text } = textConfig(root);
  for (const key of ['quantization', 'quantization_config']) {
    for (const keys of new Set([root, text])) {
      if (keys.raw(key) !== undefined) keys.unsupported(key, 'quantised checkpoints are not supported');
    }
  }
  const base = parseBase(root, text, family);
  return deepFreeze(family === 'qwen4_exp' ? parseQwen4(base, text) : parseQwen35(base, text));
}

function textConfig(root: JsonKeys): { family: QwenFamily; text: JsonKeys } {
  const modelType = root.text('model_type');
  const family = FAMILIES.get(modelType);
  if (family === undefined)
    return root.unsupported('model_type', `only ${[...FAMILIES.keys()].join(', ')} are known here`);
  if (modelType.endsWith('_text')) return { family, text: root };
  const text = root.child('text_config') ?? root.missing('text_config');
  const textType = text.text('model_type', `${family}_text`);
  if (textType !== `${family}_text`)
    text.unsupported('model_type', `inside ${modelType} only ${family}_text is known here`);
  return { family, text };
}

type Base = Omit<Qwen35Config, 'family' | 'mlpWidth'>;

function parseBase(root: JsonKeys, text: JsonKeys, family: QwenFamily): Base {
  requireSilu(text);
  const vocabSize = text.integer('vocab_size', { max: 2 ** 24 });
  const layerCount = text.integer('num_hidden_layers', { max: 2 ** 12 });
  return {
    hiddenSize: text.integer('hidden_size', WIDTH),
    vocabSize,
    layerCount,
    rmsNormEps: text.number('rms_norm_eps', { above: 0, max: 1 }, 1e-6),
    layerTypes: parseLayerTypes(text, family, layerCount),
    linearAttention: parseLinearAttention(text, family),
    attention: parseAttention(text, family),
    tieWordEmbeddings: text.flag('tie_word_embeddings', root.flag('tie_word_embeddings', false)),
    maxPositions: text.integer('max_position_embeddings', POSITIONS, 32768),
    eosTokenIds: [
      ...new Set([...tokenIdList(text, 'eos_token_id', vocabSize), ...tokenIdList(root, 'eos_token_id', vocabSize)]),
    ],
    mtpLayerCount: text.integer('mtp_num_hidden_layers', { min: 0, max: 64 }, 0),
  };
}

function requireSilu(text: JsonKeys): void {
  if (text.text('hidden_act', 'silu') !== 'silu') text.unsupported('hidden_act', 'only silu is known here');
}

function parseLayerTypes(text: JsonKeys, family: QwenFamily, layerCount: number): QwenLayerType[] {
  const listed = text.list('layer_types');
  if (listed === undefined) {
    const interval = text.integer('full_attention_interval', { max: 2 ** 12 }, 4);
    return Array.from({ length: layerCount }, (_, i) => ((i + 1) % interval === 0 ? 'attention' : 'linear_attention'));
  }
  if (listed.length !== layerCount)
    text.invalid('layer_types', `must have num_hidden_layers (${layerCount}) entries`, listed.length);
  const known = LAYER_TYPES[family];
  return listed.map(
    (type, i) =>
      (typeof type === 'string' ? known.get(type) : undefined) ??
      text.unsupported(`layer_types[${i}]`, `${family} knows ${[...known.keys()].join(', ')}`, type),
  );
}

function parseLinearAttention(text: JsonKeys, family: QwenFamily): LinearAttentionConfig {
  const keyHeads = text.integer('linear_num_key_heads', HEADS);
  const valueHeads = text.integer('linear_num_value_heads', HEADS);
  const keyHeadDim = text.integer('linear_key_head_dim', HEAD_DIM);
  const valueHeadDim = text.integer('linear_value_head_dim', HEAD_DIM);
  if (valueHeads % keyHeads !== 0) {
    text.invalid('linear_num_value_heads', `must be a multiple of linear_num_key_heads (${keyHeads})`);
  }
  return {
    keyHeads,
    valueHeads,
    keyHeadDim,
    valueHeadDim,
    convKernel: text.integer('linear_conv_kernel_dim', KERNEL, 4),
    convChannels: 2 * keyHeads * keyHeadDim + valueHeads * valueHeadDim,
    outputGate: family === 'qwen3_5' ? 'silu' : parseOutputGate(text),
  };
}

function parseOutputGate(text: JsonKeys): GateActivation {
  const gate = text.text('output_gate_type', 'silu');
  if (gate === 'sigmoid' || gate === 'silu') return gate;
  return text.unsupported('output_gate_type', 'only sigmoid and silu are known here');
}

function parseAttention(text: JsonKeys, family: QwenFamily): AttentionConfig {
  const heads = text.integer('num_attention_heads', HEADS);
  const kvHeads = text.integer('num_key_value_heads', HEADS);
  if (heads % kvHeads !== 0)
    text.invalid('num_attention_heads', `must be a multiple of num_key_value_heads (${kvHeads})`);
  if (!text.flag('attn_output_gate', true))
    text.unsupported('attn_output_gate', 'attention without its output gate is not known here');
  const headDim = text.integer('head_dim', HEAD_DIM, 256);
  return { heads, kvHeads, headDim, ...parseRope(text, family, headDim), bias: text.flag('attention_bias', false) };
}

type Rope = Pick<AttentionConfig, 'rotaryDim' | 'ropeTheta' | 'mropeSection'>;

function parseRope(text: JsonKeys, family: QwenFamily, headDim: number): Rope {
  // `rope_scaling` is where older files say the same.
  for (const keys of [text.child('rope_parameters'), text.child('rope_scaling')]) {
    for (const key of ['rope_type', 'type']) {
      if (keys !== undefined && keys.text(key, 'default') !== 'default')
        keys.unsupported(key, 'only default is known here');
    }
  }
  const rope = text.child('rope_parameters');
  const holderOf = (key: string): JsonKeys => (rope?.raw(key) === undefined ? text : rope);
  const partialHolder = holderOf('partial_rotary_factor');
  const partial = partialHolder.number('partial_rotary_factor', { above: 0, max: 1 }, family === 'qwen3_5' ? 0.25 : 1);
  const rotaryDim = Math.trunc(headDim * partial);
  if (rotaryDim < 2 || rotaryDim % 2 !== 0) {
    partialHolder.invalid(
      'partial_rotary_factor',
      `must give an even rotary width of at least 2; with head_dim ${headDim} it gives ${rotaryDim}`,
      partial,
    );
  }
  return {
    rotaryDim,
    ropeTheta: holderOf('rope_theta').number('rope_theta', { above: 0, max: 1e15 }, 10000),
    mropeSection: parseSection(holderOf('mrope_section')),
  };
}

function parseSection(keys: JsonKeys): readonly [number, number, number] {
  const section = (keys.list('mrope_section') ?? [11, 11, 10]).map((size, axis) =>
    keys.checkInteger(`mrope_section[${axis}]`, size, { min: 0, max: HEAD_DIM.max }),
  );
  const [time, height, width] = section;
  if (section.length !== 3 || time === undefined || height === undefined || width === undefined) {
    return keys.invalid('mrope_section', 'must have three entries');
  }
  return [time, height, width];
}

function parseQwen35(base: Base, text: JsonKeys): Qwen35Config {
  return { family: 'qwen3_5', ...base, mlpWidth: text.integer('intermediate_size', WIDTH) };
}

function parseQwen4(base: Base, text: JsonKeys): Qwen4Config {
  return {
    family: 'qwen4_exp',
    ...base,
    hyperConnections: {
      streams: text.integer('hc_count', { min: 2, max: 64 }, 4),
      rank: text.integer('hc_lowrank', WIDTH),
    },
    moe: parseMoe(text),
    indexer: base.layerTypes.includes('attention') ? parseIndexer(text, base.attention.rotaryDim) : undefined,
    ple: parsePle(base, text),
  };
}

function parseMoe(text: JsonKeys): MoeConfig {
  const experts = text.integer('num_experts', { max: 2 ** 14 });
  const expertsPerToken = text.integer('num_experts_per_tok', { max: 2 ** 14 });
  if (expertsPerToken > experts) text.invalid('num_experts_per_tok', `must not be above num_experts (${experts})`);
  return {
    experts,
    expertsPerToken,
    expertWidth: text.integer('moe_intermediate_size', WIDTH),
    sharedExpertWidth: text.integer('shared_expert_intermediate_size', WIDTH),
    normTopkProb: text.flag('norm_topk_prob', true),
  };
}

function parseIndexer(text: JsonKeys, rotaryDim: number): IndexerConfig {
  if (text.integer('indexer_kv_heads', HEADS) !== 1) text.unsupported('indexer_kv_heads', 'only 1 is known here');
  const headDim = text.integer('indexer_head_dim', HEAD_DIM);
  if (rotaryDim > headDim)
    text.invalid('indexer_head_dim', `must not be below the rotary width of the attention heads (${rotaryDim})`);
  const blockTokens = text.integer('indexer_compress_ratio', { max: 2 ** 16 });
  const budgetTokens = text.integer('indexer_budget', POSITIONS);
  if (budgetTokens % blockTokens !== 0)
    text.invalid('indexer_budget', `must be a multiple of indexer_compress_ratio (${blockTokens})`);
  return { heads: text.integer('indexer_n_heads', HEADS), headDim, blockTokens, budgetTokens };
}

function parsePle(base: Base, text: JsonKeys): PleConfig | undefined {
  const layers = parsePleLayers(base, text);
  if (layers.length === 0) return undefined;
  const eosTokenId = tokenIdList(text, 'eos_token_id', base.vocabSize)[0];
  if (eosTokenId === undefined)
    return text.invalid('eos_token_id', 'must name an id when ple_layer_ids is not empty', null);
  const ngramSize = text.integer('ngram_size', { min: 2, max: 16 }, 3);
  const headsPerNgram = text.integer('heads_per_ngram', { max: 64 }, 8);
  const heads = (ngramSize - 1) * headsPerNgram;
  const embedDim = text.integer('ple_embed_dim', WIDTH, base.hiddenSize);
  if (embedDim % heads !== 0) {
    text.invalid('ple_embed_dim', `must be a multiple of (ngram_size - 1) * heads_per_ngram (${heads})`, embedDim);
  }
  const tableSizeBase = text.integer('ngram_vocab_size_base', { max: MAX_TABLE_ROWS }, 20_000_000);
  if (tableSizeBase * heads > MAX_TABLE_ROWS) {
    text.invalid(
      'ngram_vocab_size_base',
      `times ${heads} heads must not exceed ${MAX_TABLE_ROWS} table rows`,
      tableSizeBase,
    );
  }
  return {
    layers,
    embedDim,
    convKernel: text.integer('ple_conv_kernel_size', KERNEL, 4),
    ngramSize,
    headsPerNgram,
    heads,
    rowWidth: embedDim / heads,
    tableSizeBase,
    tableRowDivisor: text.integer('make_ngram_vocab_size_divisible_by', { max: 2 ** 20 }, 128),
    seed: text.integer('seed', { min: 0, max: Number.MAX_SAFE_INTEGER }, 1234),
    eosTokenId,
  };
}

/** `ple_layer_ids` counts from one; ours are indices. */
function parsePleLayers({ layerCount, layerTypes }: Base, text: JsonKeys): number[] {
  const ids = (text.list('ple_layer_ids') ?? []).map((id, i) =>
    text.checkInteger(`ple_layer_ids[${i}]`, id, { max: layerCount }),
  );
  const layers = [...new Set(ids)].sort((a, b) => a - b).map((id) => id - 1);
  for (const layer of layers) {
    if (layerTypes[layer] !== 'linear_attention')
      text.invalid('ple_layer_ids', `must name linear layers only, and layer ${layer + 1} is none`);
  }
  return layers;
}
