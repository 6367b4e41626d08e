/**
 * config.json of a DeepSeek V4 checkpoint: defaults, derived sizes, and every rule that decides whether the model can be
 * run. Absent keys take the defaults of the class that wrote the file.
 *
 * Invariants: what leaves here has passed all rules, so nothing downstream checks a size again; every refusal names the
 * key, its value and the rule. Bounds are far above any model and keep all products inside safe integers.
 */
import { join } from 'node:path';
import { tokenIdList } from '../../weights/generation-config.js';
import { readJsonFile, type JsonKeys } from '../../weights/json-file.js';
import type { ManifoldConfig } from '../plan-manifold.js';
import { refuseQuantisedConfig } from '../quantised.js';
import type {
  DeepseekAttentionConfig,
  DeepseekConfig,
  DeepseekIndexerConfig,
  DeepseekMoeConfig,
} from './config-types.js';
import { parseLayerTypes, parseMlpTypes, parseRates } from './layer-kinds.js';
import { parseRope } from './rope-config.js';

const WIDTH = { max: 2 ** 20 };
const HEADS = { max: 2 ** 12 };
const HEAD_DIM = { max: 2 ** 12 };
const EXPERTS = { max: 2 ** 14 };
/** Streams and index heads that the ops take. */
const STREAMS = { max: 8 };
const INDEX_HEADS = { max: 64 };
/** Positions are float32 on their way into the rotary angle: beyond 2^24 they would no longer be integers. */
export const POSITIONS = { max: 2 ** 24 };

/**
 * Read and check config.json of a folder.
 *
 * @throws checkpoint_not_found, checkpoint_unreadable, config_invalid, config_unsupported
 */
export function readDeepseekConfig(dir: string): DeepseekConfig {
  return parseDeepseekConfig(readJsonFile(join(dir, 'config.json')));
}

/** @throws config_invalid, config_unsupported: naming the key, its value and the rule */
export function parseDeepseekConfig(keys: JsonKeys): DeepseekConfig {
  if (keys.text('model_type') !== 'deepseek_v4') keys.unsupported('model_type', 'only deepseek_v4 is known here');
  refuseQuantisedConfig(keys, keys);
  requireKnown(keys);
  const vocabSize = keys.integer('vocab_size', { max: 2 ** 24 }, 129280);
  const layerCount = keys.integer('num_hidden_layers', { max: 2 ** 12 }, 43);
  const maxPositions = keys.integer('max_position_embeddings', POSITIONS, 1048576);
  const layerTypes = parseLayerTypes(keys, layerCount);
  const attention = parseAttention(keys);
  const eos = tokenIdList(keys, 'eos_token_id', vocabSize);
  return deepFreeze<DeepseekConfig>({
    family: 'deepseek_v4',
    hiddenSize: keys.integer('hidden_size', WIDTH, 4096),
    vocabSize,
    layerTypes,
    mlpTypes: parseMlpTypes(keys, layerCount),
    rmsNormEps: keys.number('rms_norm_eps', { above: 0, max: 1 }, 1e-6),
    hyper: parseHyper(keys),
    attention,
    rates: parseRates(keys, layerTypes),
    indexer: layerTypes.includes('compressed_sparse_attention') ? parseIndexer(keys, attention.rotaryDim) : undefined,
    moe: parseMoe(keys),
    rope: parseRope(keys, maxPositions),
    maxPositions,
    eosTokenIds: eos.length > 0 ? eos : [1],
  });
}

/** Keys of which one value alone is known. */
function requireKnown(keys: JsonKeys): void {
  if (keys.text('hidden_act', 'silu') !== 'silu') keys.unsupported('hidden_act', 'only silu is known here');
  for (const key of ['attention_bias', 'mlp_bias', 'tie_word_embeddings']) {
    if (keys.flag(key, false)) keys.unsupported(key, 'only false is known here');
  }
  for (const key of ['num_key_value_heads', 'n_shared_experts']) {
    if (keys.integer(key, { min: 0, max: 2 ** 12 }, 1) !== 1) keys.unsupported(key, 'only 1 is known here');
  }
}

function parseHyper(keys: JsonKeys): ManifoldConfig {
  return {
    streams: keys.integer('hc_mult', STREAMS, 4),
    iterations: keys.integer('hc_sinkhorn_iters', { max: 1000 }, 20),
    eps: keys.number('hc_eps', { above: 0, max: 1 }, 1e-6),
  };
}

function parseAttention(keys: JsonKeys): DeepseekAttentionConfig {
  const heads = keys.integer('num_attention_heads', HEADS, 64);
  const headDim = keys.integer('head_dim', HEAD_DIM, 512);
  const outputGroups = keys.integer('o_groups', HEADS, 8);
  if ((heads * headDim) % outputGroups !== 0) {
    keys.invalid('o_groups', `must divide num_attention_heads * head_dim (${heads * headDim})`, outputGroups);
  }
  return {
    heads,
    headDim,
    queryRank: keys.integer('q_lora_rank', WIDTH, 1024),
    rotaryDim: parseRotaryDim(keys, headDim),
    outputGroups,
    outputRank: keys.integer('o_lora_rank', WIDTH, 1024),
    window: keys.integer('sliding_window', { max: 2 ** 16 }, 128),
  };
}

/** int(head_dim * partial_rotary_factor); the factor, where absent, follows from qk_rope_head_dim, where absent is 64/512. */
function parseRotaryDim(keys: JsonKeys, headDim: number): number {
  const named = keys.raw('partial_rotary_factor') !== undefined;
  const width = keys.raw('qk_rope_head_dim') === undefined ? undefined : keys.integer('qk_rope_head_dim', HEAD_DIM);
  const factor = named
    ? keys.number('partial_rotary_factor', { above: 0, max: 1 })
    : width === undefined
      ? 64 / 512
      : width / headDim;
  const rotaryDim = Math.trunc(headDim * factor);
  if (rotaryDim >= 2 && rotaryDim % 2 === 0 && rotaryDim <= headDim) return rotaryDim;
  return keys.invalid(
    named ? 'partial_rotary_factor' : 'qk_rope_head_dim',
    `must give an even rotary width from 2 to head_dim (${headDim}), and gives ${rotaryDim}`,
  );
}

function parseIndexer(keys: JsonKeys, rotaryDim: number): DeepseekIndexerConfig {
  const headDim = keys.integer('index_head_dim', HEAD_DIM, 128);
  if (headDim < rotaryDim) {
    keys.invalid('index_head_dim', `must not be below the rotary width of the heads (${rotaryDim})`, headDim);
  }
  return {
    heads: keys.integer('index_n_heads', INDEX_HEADS, 64),
    headDim,
    topRows: keys.integer('index_topk', { max: 2 ** 20 }, 512),
  };
}

function parseMoe(keys: JsonKeys): DeepseekMoeConfig {
  const experts = keys.integer('n_routed_experts', EXPERTS, 256);
  const expertsPerToken = keys.integer('num_experts_per_tok', { max: 256 }, 6);
  if (expertsPerToken > experts) {
    keys.invalid('num_experts_per_tok', `must not be above n_routed_experts (${experts})`, expertsPerToken);
  }
  return {
    experts,
    expertsPerToken,
    expertWidth: keys.integer('moe_intermediate_size', WIDTH, 2048),
    scoring: parseScoring(keys),
    scaling: keys.number('routed_scaling_factor', { above: 0, max: 1e6 }, 1.5),
    swigluLimit: keys.number('swiglu_limit', { above: 0, max: 1e30 }, 10),
  };
}

function parseScoring(keys: JsonKeys): DeepseekMoeConfig['scoring'] {
  const scoring = keys.text('scoring_func', 'sqrtsoftplus');
  if (scoring === 'sqrtsoftplus' || scoring === 'sigmoid') return scoring;
  return keys.unsupported('scoring_func', 'only sqrtsoftplus and sigmoid are known here');
}

function deepFreeze<T extends object>(value: T): T {
  for (const child of Object.values(value) as unknown[]) {
    if (typeof child === 'object' && child !== null) deepFreeze(child);
  }
  return Object.freeze(value);
}
