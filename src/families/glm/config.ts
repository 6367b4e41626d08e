/**
 * config.json of a GLM checkpoint: defaults, derived sizes, and every rule that decides whether the model can be run.
 *
 * The file is either the text config itself (`model_type` ends in `_text`) or a wrapper whose `text_config` holds the
 * keys. Absent keys take the defaults of the class that wrote the file.
 *
 * Invariants: what leaves here has passed all rules, so nothing downstream checks a size again; every refusal names the
 * key, its value and the rule. Bounds are those of the op table or far above any model.
 */
import { join } from 'node:path';
import { tokenIdList } from '../../weights/generation-config.js';
import { readJsonFile, type JsonKeys } from '../../weights/json-file.js';
import { deepFreeze } from '../deep-freeze.js';
import { refuseQuantisedConfig } from '../quantised.js';
import type {
  DsaConfig,
  GlmConfig,
  GlmIndexerConfig,
  GlmIndexerType,
  GlmLayerType,
  GlmMlpType,
  GlmMoeConfig,
  KdaConfig,
} from './config-types.js';

const FAMILY = 'glm5_next';
const TEXT_TYPE = `${FAMILY}_text`;

const WIDTH = { max: 2 ** 20 };
const HEADS = { max: 2 ** 12 };
const HEAD_DIM = { max: 2 ** 12 };
/** Rows of a recurrent state. */
const KDA_DIM = { max: 512 };
const INDEX_HEADS = { max: 64 };
const POSITIONS = { max: 2 ** 24 };
const EPS = { above: 0, max: 1 };

const LAYER_TYPES: ReadonlyMap<string, GlmLayerType> = new Map([
  ['linear_attention', 'kda'],
  ['deepseek_sparse_attention', 'dsa'],
  ['full_attention', 'dsa'],
]);
const MLP_TYPES: ReadonlyMap<string, GlmMlpType> = new Map([
  ['dense', 'dense'],
  ['sparse', 'sparse'],
]);
const INDEXER_TYPES: ReadonlyMap<string, GlmIndexerType> = new Map([
  ['full', 'full'],
  ['shared', 'shared'],
]);
const PATTERN_TYPES: ReadonlyMap<string, GlmIndexerType> = new Map([['F', 'full'], ['S', 'shared'], ...INDEXER_TYPES]);

/**
 * Read and check config.json of a folder.
 *
 * @throws checkpoint_not_found, checkpoint_unreadable, config_invalid, config_unsupported
 */
export function readGlmConfig(dir: string): GlmConfig {
  return parseGlmConfig(readJsonFile(join(dir, 'config.json')));
}

/** @throws config_invalid, config_unsupported: naming the key, its value and the rule */
export function parseGlmConfig(root: JsonKeys): GlmConfig {
  const text = textConfig(root);
  refuseQuantisedConfig(root, text);
  if (text.text('hidden_act', 'silu') !== 'silu') text.unsupported('hidden_act', 'only silu is known here');
  const vocabSize = text.integer('vocab_size', { max: 2 ** 24 }, 154880);
  const layerCount = text.integer('num_hidden_layers', { max: 2 ** 12 }, 45);
  const layerTypes = perLayer(text, 'layer_types', layerCount, LAYER_TYPES, (l) => (l % 4 === 3 ? 'dsa' : 'kda'));
  const indexerTypes = parseIndexerTypes(text, layerCount);
  const firstDsa = layerTypes.indexOf('dsa');
  if (firstDsa >= 0 && indexerTypes[firstDsa] === 'shared') {
    text.invalid(
      text.raw('indexer_types') === undefined ? 'index_topk_pattern' : 'indexer_types',
      `must make the first sparse layer, ${firstDsa}, a full one: there is no choice before it to share`,
    );
  }
  return deepFreeze({
    family: FAMILY,
    hiddenSize: text.integer('hidden_size', WIDTH, 4096),
    vocabSize,
    layerCount,
    rmsNormEps: text.number('rms_norm_eps', EPS, 1e-5),
    layerTypes,
    mlpTypes: perLayer(text, 'mlp_layer_types', layerCount, MLP_TYPES, (l) => (l < 3 ? 'dense' : 'sparse')),
    indexerTypes,
    kda: parseKda(text),
    dsa: parseDsa(text),
    indexer: parseIndexer(text),
    hyperConnections: {
      streams: text.integer('hc_mult', { max: 8 }, 4),
      eps: text.number('hc_eps', EPS, 1e-6),
      iterations: text.integer('hc_sinkhorn_iters', { max: 1000 }, 20),
    },
    denseWidth: text.integer('intermediate_size', WIDTH, 12288),
    moe: parseMoe(text),
    swigluLimit: text.number('swiglu_limit', { above: 0, max: 1e30 }, 10),
    tieWordEmbeddings: text.flag('tie_word_embeddings', root.flag('tie_word_embeddings', false)),
    maxPositions: text.integer('max_position_embeddings', POSITIONS, 1048576),
    eosTokenIds: [
      ...new Set([...tokenIdList(text, 'eos_token_id', vocabSize), ...tokenIdList(root, 'eos_token_id', vocabSize)]),
    ],
  });
}

function textConfig(root: JsonKeys): JsonKeys {
  const modelType = root.text('model_type');
  if (modelType === TEXT_TYPE) return root;
  if (modelType !== FAMILY) root.unsupported('model_type', `only ${FAMILY}, ${TEXT_TYPE} are known here`);
  const text = root.child('text_config');
  if (text === undefined) return root; // a flat text-only config
  if (text.text('model_type', TEXT_TYPE) !== TEXT_TYPE)
    text.unsupported('model_type', `inside ${FAMILY} only ${TEXT_TYPE} is known here`);
  return text;
}

/** A list with a word for every layer, or the rule that stands in for an absent one. */
function perLayer<T>(
  text: JsonKeys,
  key: string,
  layerCount: number,
  words: ReadonlyMap<string, T>,
  fallback: (layer: number) => T,
): T[] {
  const listed = text.list(key);
  if (listed === undefined) return Array.from({ length: layerCount }, (_, layer) => fallback(layer));
  if (listed.length !== layerCount)
    text.invalid(key, `must have num_hidden_layers (${layerCount}) entries`, listed.length);
  return listed.map(
    (word, layer) =>
      (typeof word === 'string' ? words.get(word) : undefined) ??
      text.unsupported(`${key}[${layer}]`, `known here are ${[...words.keys()].join(', ')}`, word),
  );
}

/** `indexer_types`, else `index_topk_pattern`, else a schedule that counts all layers. */
function parseIndexerTypes(text: JsonKeys, layerCount: number): GlmIndexerType[] {
  const frequency = text.integer('index_topk_freq', { min: 0, max: 2 ** 12 }, 1);
  const offset = text.integer('index_skip_topk_offset', { min: 0, max: 2 ** 12 }, 2);
  const scheduled = (layer: number): GlmIndexerType =>
    Math.max(layer - offset + 1, 0) % Math.max(frequency, 1) === 0 ? 'full' : 'shared';
  const key = 'index_topk_pattern';
  const pattern = text.raw(key);
  if (text.raw('indexer_types') !== undefined || pattern === undefined)
    return perLayer(text, 'indexer_types', layerCount, INDEXER_TYPES, scheduled);
  if (typeof pattern !== 'string') return perLayer(text, key, layerCount, PATTERN_TYPES, scheduled);
  if (pattern.length !== layerCount)
    text.invalid(key, `must have a letter for each of num_hidden_layers (${layerCount})`);
  return Array.from(
    pattern,
    (letter, layer) =>
      PATTERN_TYPES.get(letter) ?? text.unsupported(`${key}[${layer}]`, 'known here are F and S', letter),
  );
}

/** The `linear_*` keys; an older `linear_attn_config` overrides them. */
function parseKda(text: JsonKeys): KdaConfig {
  const old = text.child('linear_attn_config');
  const holderOf = (oldKey: string, key: string): readonly [JsonKeys, string] =>
    old?.raw(oldKey) === undefined ? [text, key] : [old, oldKey];
  const [headsIn, headsKey] = holderOf('num_heads', 'linear_num_heads');
  const [dimIn, dimKey] = holderOf('head_dim', 'linear_head_dim');
  const [kernelIn, kernelKey] = holderOf('short_conv_kernel_size', 'linear_conv_kernel_dim');
  return {
    heads: headsIn.integer(headsKey, HEADS, 64),
    headDim: dimIn.integer(dimKey, KDA_DIM, 128),
    convKernel: kernelIn.integer(kernelKey, { max: 64 }, 4),
    decayBound: parseDecayBound(text, old),
  };
}

const DEFAULT_BOUND = -5;

/** Null stands for no bound, but not where the older config has `safe_gate`. */
function parseDecayBound(text: JsonKeys, old: JsonKeys | undefined): number | undefined {
  const [keys, key] = old?.has('gate_lower_bound') ? [old, 'gate_lower_bound'] : [text, 'linear_lower_bound'];
  const none = keys.has(key) && keys.raw(key) === undefined;
  if (none) return old !== undefined && old.flag('safe_gate', true) ? -DEFAULT_BOUND : undefined;
  const bound = keys.number(key, { above: -1e6, max: 0 }, DEFAULT_BOUND);
  return bound < 0 ? -bound : keys.invalid(key, 'must be negative, or null for none', bound);
}

function parseDsa(text: JsonKeys): DsaConfig {
  if (text.flag('attention_bias', false)) text.unsupported('attention_bias', 'projections have no bias here');
  if (text.integer('qk_rope_head_dim', { min: 0, max: HEAD_DIM.max }, 0) !== 0)
    text.unsupported('qk_rope_head_dim', 'attention of this family has no positions: only 0 is known here');
  const heads = text.integer('num_attention_heads', HEADS, 64);
  if (text.integer('num_key_value_heads', HEADS, heads) !== heads)
    text.unsupported('num_key_value_heads', `only as many as num_attention_heads (${heads}) are known here`);
  return {
    heads,
    queryRank: text.integer('q_lora_rank', WIDTH, 1536),
    latentDim: text.integer('kv_lora_rank', HEAD_DIM, 512),
    keyDim: text.integer('qk_nope_head_dim', HEAD_DIM, 256),
    valueDim: text.integer('v_head_dim', HEAD_DIM, 256),
  };
}

function parseIndexer(text: JsonKeys): GlmIndexerConfig {
  const poolTokens = text.integer('index_kpool', { max: 2 ** 16 }, 16);
  const budgetTokens = text.integer('index_topk', POSITIONS, 2048);
  if (budgetTokens % poolTokens !== 0)
    text.invalid('index_topk', `must be a multiple of index_kpool (${poolTokens})`, budgetTokens);
  return {
    heads: text.integer('index_n_heads', INDEX_HEADS, 32),
    headDim: text.integer('index_head_dim', HEAD_DIM, 128),
    budgetTokens,
    poolTokens,
    tail: text.flag('index_kpool_always_select_tail', true),
  };
}

function parseMoe(text: JsonKeys): GlmMoeConfig {
  const experts = text.integer('n_routed_experts', { max: 2 ** 14 }, 288);
  const expertsPerToken = text.integer('num_experts_per_tok', { max: 256 }, 8);
  const groups = text.integer('n_group', { max: 2 ** 14 }, 1);
  const groupsKept = text.integer('topk_group', { max: 2 ** 14 }, 1);
  if (experts % groups !== 0) text.invalid('n_group', `must divide n_routed_experts (${experts})`, groups);
  if (groupsKept > groups) text.invalid('topk_group', `must not be above n_group (${groups})`, groupsKept);
  const candidates = groupsKept * (experts / groups);
  if (expertsPerToken > candidates) {
    text.invalid(
      'num_experts_per_tok',
      `must not be above the ${candidates} experts of the kept groups`,
      expertsPerToken,
    );
  }
  const expertWidth = text.integer('moe_intermediate_size', WIDTH, 2048);
  return {
    experts,
    expertsPerToken,
    expertWidth,
    sharedWidth: expertWidth * text.integer('n_shared_experts', { max: 64 }, 1),
    scaling: text.number('routed_scaling_factor', { above: 0, max: 1e6 }, 2.5),
    groups,
    groupsKept,
    normTopkProb: text.flag('norm_topk_prob', true),
  };
}
