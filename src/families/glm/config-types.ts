/**
 * The configuration of a GLM model, as the rest of the family reads it. Only `config.ts` makes one, from config.json, after
 * every rule has been checked; values are immutable and all sizes are positive safe integers.
 *
 * The symbols in brackets are those of the published notes on the family; weight shapes are written with them.
 */

/** KDA: linear attention with a decay for every key channel. DSA: sparse attention over latent rows. */
export type GlmLayerType = 'kda' | 'dsa';
export type GlmMlpType = 'dense' | 'sparse';
/** A full layer chooses what its queries see; a shared one takes the choice of the last full layer before it. */
export type GlmIndexerType = 'full' | 'shared';

export interface KdaConfig {
  /** [nl] `linear_num_heads` */
  readonly heads: number;
  /** [dl] `linear_head_dim`, of keys and values alike */
  readonly headDim: number;
  /** [Kc] `linear_conv_kernel_dim` */
  readonly convKernel: number;
  /** Size of `linear_lower_bound`, the negative bound of the log decay; absent: none. */
  readonly decayBound?: number | undefined;
}

export interface DsaConfig {
  /** [nh] `num_attention_heads` */
  readonly heads: number;
  /** `q_lora_rank` */
  readonly queryRank: number;
  /** [C] `kv_lora_rank`: width of a latent row */
  readonly latentDim: number;
  /** [dk] `qk_nope_head_dim` */
  readonly keyDim: number;
  /** [dv] `v_head_dim` */
  readonly valueDim: number;
}

export interface GlmIndexerConfig {
  /** [nI] `index_n_heads` */
  readonly heads: number;
  /** [dI] `index_head_dim` */
  readonly headDim: number;
  /** `index_topk`: tokens of the chosen pools, a multiple of K */
  readonly budgetTokens: number;
  /** [K] `index_kpool`: tokens of a pool */
  readonly poolTokens: number;
  /** `index_kpool_always_select_tail`: whether the tokens of the unfinished pool are always seen */
  readonly tail: boolean;
}

export interface GlmMoeConfig {
  /** [E] `n_routed_experts` */
  readonly experts: number;
  /** [k] `num_experts_per_tok` */
  readonly expertsPerToken: number;
  /** [M] `moe_intermediate_size` */
  readonly expertWidth: number;
  /** M times `n_shared_experts` */
  readonly sharedWidth: number;
  /** `routed_scaling_factor` */
  readonly scaling: number;
  /** `n_group` and `topk_group` */
  readonly groups: number;
  readonly groupsKept: number;
  /** `norm_topk_prob` */
  readonly normTopkProb: boolean;
}

export interface GlmConfig {
  readonly family: 'glm5_next';
  /** [D] `hidden_size` */
  readonly hiddenSize: number;
  /** [V] `vocab_size` */
  readonly vocabSize: number;
  /** [L] `num_hidden_layers`; every per-layer list has this length */
  readonly layerCount: number;
  /** `rms_norm_eps` */
  readonly rmsNormEps: number;
  readonly layerTypes: readonly GlmLayerType[];
  readonly mlpTypes: readonly GlmMlpType[];
  /** Read at DSA layers only. */
  readonly indexerTypes: readonly GlmIndexerType[];
  readonly kda: KdaConfig;
  readonly dsa: DsaConfig;
  readonly indexer: GlmIndexerConfig;
  readonly hyperConnections: {
    /** [H] `hc_mult` */
    readonly streams: number;
    /** `hc_eps` */
    readonly eps: number;
    /** `hc_sinkhorn_iters` */
    readonly iterations: number;
  };
  /** `intermediate_size` of dense layers */
  readonly denseWidth: number;
  readonly moe: GlmMoeConfig;
  /** `swiglu_limit` */
  readonly swigluLimit: number;
  /** `tie_word_embeddings`: `lm_head.weight` may be absent, and is then the embedding. */
  readonly tieWordEmbeddings: boolean;
  /** `max_position_embeddings` */
  readonly maxPositions: number;
  /** Ids that end a turn: `eos_token_id` of the text config, then of the wrapper, duplicates removed. */
  readonly eosTokenIds: readonly number[];
}
