/**
 * The configuration of a DeepSeek V4 model, as the rest of the family reads it. Only `config.ts` makes one, from
 * config.json, after every rule has been checked; values are immutable and all sizes are positive safe integers.
 *
 * The symbols in brackets are those in which weight shapes are written.
 */
import type { ManifoldConfig } from '../plan-manifold.js';
import type { RopeConfig } from './rope.js';

/**
 * How a layer looks at the past beyond its window: not at all, at compressed rows that an indexer chooses (windows of few
 * tokens that overlap), or at all compressed rows (windows of many tokens).
 */
export type DeepseekLayerType = 'sliding_attention' | 'compressed_sparse_attention' | 'heavily_compressed_attention';

/** How the experts of a layer are chosen: by a table of the token's id, or by score and bias. */
export type DeepseekMlpType = 'hash_moe' | 'moe';

export interface DeepseekAttentionConfig {
  /** [nh] `num_attention_heads` */
  readonly heads: number;
  /** [hd] `head_dim`: of a query head, and of the one row that is key and value of all heads */
  readonly headDim: number;
  /** [q_lora] `q_lora_rank` */
  readonly queryRank: number;
  /** [rd] the turned channels at the end of a head, even */
  readonly rotaryDim: number;
  /** [G] `o_groups`, a divisor of nh * hd */
  readonly outputGroups: number;
  /** [R] `o_lora_rank` */
  readonly outputRank: number;
  /** [W] `sliding_window` */
  readonly window: number;
}

/** The indexer of the layers that choose. */
export interface DeepseekIndexerConfig {
  /** [nI] `index_n_heads` */
  readonly heads: number;
  /** [dI] `index_head_dim`, at least rd */
  readonly headDim: number;
  /** `index_topk`: compressed rows that a query may see */
  readonly topRows: number;
}

export interface DeepseekMoeConfig {
  /** [E] `n_routed_experts` */
  readonly experts: number;
  /** [k] `num_experts_per_tok` */
  readonly expertsPerToken: number;
  /** [M] `moe_intermediate_size`, also of the shared expert */
  readonly expertWidth: number;
  /** `scoring_func` */
  readonly scoring: 'sigmoid' | 'sqrtsoftplus';
  /** `routed_scaling_factor` */
  readonly scaling: number;
  /** `swiglu_limit` */
  readonly swigluLimit: number;
}

export interface DeepseekConfig {
  readonly family: 'deepseek_v4';
  /** [D] `hidden_size` */
  readonly hiddenSize: number;
  /** [vocab] `vocab_size` */
  readonly vocabSize: number;
  readonly layerTypes: readonly DeepseekLayerType[];
  readonly mlpTypes: readonly DeepseekMlpType[];
  /** `rms_norm_eps` */
  readonly rmsNormEps: number;
  /** [H] `hc_mult`, `hc_sinkhorn_iters`, `hc_eps` */
  readonly hyper: ManifoldConfig;
  readonly attention: DeepseekAttentionConfig;
  /** Tokens of a window of each kind that compresses. */
  readonly rates: Readonly<Record<Exclude<DeepseekLayerType, 'sliding_attention'>, number>>;
  /** Present when a layer is of the kind that chooses. */
  readonly indexer?: DeepseekIndexerConfig | undefined;
  readonly moe: DeepseekMoeConfig;
  /** `main` turns sliding layers, `compress` everything in the others. */
  readonly rope: { readonly main: RopeConfig; readonly compress: RopeConfig };
  /** `max_position_embeddings` */
  readonly maxPositions: number;
  /** Ids that end a turn: `eos_token_id`, 1 where the file names none. */
  readonly eosTokenIds: readonly number[];
}
