/**
 * The configuration of a Qwen model, as the rest of the family reads it. Only `config.ts` makes one, from config.json,
 * after every rule has been checked; values are immutable and all sizes are positive safe integers.
 *
 * The symbols in brackets are those of the published notes on the family; weight shapes are written with them.
 */

export type QwenFamily = 'qwen4_exp' | 'qwen3_5';

/** `attention` stands for both `full_attention` and `qwen_sparse_attention`, which mean the same thing in a family. */
export type QwenLayerType = 'linear_attention' | 'attention';

export type GateActivation = 'sigmoid' | 'silu';

/** Gated DeltaNet. */
export interface LinearAttentionConfig {
  /** [Nk] `linear_num_key_heads` */
  readonly keyHeads: number;
  /** [Nv] `linear_num_value_heads`, a multiple of Nk */
  readonly valueHeads: number;
  /** [Dk] `linear_key_head_dim` */
  readonly keyHeadDim: number;
  /** [Dv] `linear_value_head_dim` */
  readonly valueHeadDim: number;
  /** [K] `linear_conv_kernel_dim` */
  readonly convKernel: number;
  /** 2·Nk·Dk + Nv·Dv: width of `in_proj_qkv` and of the convolution. */
  readonly convChannels: number;
  /** Gate of the head norm: `output_gate_type`, else `hidden_act`; always silu in qwen3_5. */
  readonly outputGate: GateActivation;
}

export interface AttentionConfig {
  /** [Hq] `num_attention_heads`, a multiple of Hkv */
  readonly heads: number;
  /** [Hkv] `num_key_value_heads` */
  readonly kvHeads: number;
  /** [D] `head_dim` */
  readonly headDim: number;
  /** [Dr] trunc(D · partial_rotary_factor), even */
  readonly rotaryDim: number;
  /** `rope_parameters.rope_theta` */
  readonly ropeTheta: number;
  /** `rope_parameters.mrope_section`: text positions are equal on all axes, so text does not need it. */
  readonly mropeSection: readonly [number, number, number];
  /** `attention_bias`: biases on q, k, v and o projections */
  readonly bias: boolean;
}

/** The indexer of sparse attention (`qwen4_exp`). */
export interface IndexerConfig {
  /** [Hi] `indexer_n_heads` */
  readonly heads: number;
  /** [Di] `indexer_head_dim`, at least Dr */
  readonly headDim: number;
  /** [B] `indexer_compress_ratio`: tokens of a block */
  readonly blockTokens: number;
  /** [budget] `indexer_budget`: tokens that the chosen blocks may hold, a multiple of B */
  readonly budgetTokens: number;
}

export interface MoeConfig {
  /** [E] `num_experts` */
  readonly experts: number;
  /** [k] `num_experts_per_tok` */
  readonly expertsPerToken: number;
  /** [I] `moe_intermediate_size` */
  readonly expertWidth: number;
  /** [Is] `shared_expert_intermediate_size` */
  readonly sharedExpertWidth: number;
  /** `norm_topk_prob` */
  readonly normTopkProb: boolean;
}

export interface HyperConnectionConfig {
  /** [C] `hc_count`: residual streams, at least 2 */
  readonly streams: number;
  /** [r] `hc_lowrank` */
  readonly rank: number;
}

/** Hashed n-gram embedding. */
export interface PleConfig {
  /** Zero-based layer indices (`ple_layer_ids` minus one), ascending, all of them linear layers. */
  readonly layers: readonly number[];
  /** [De] `ple_embed_dim`, a multiple of A */
  readonly embedDim: number;
  /** [Kp] `ple_conv_kernel_size` */
  readonly convKernel: number;
  /** [G] `ngram_size`, also the dilation of the convolution */
  readonly ngramSize: number;
  /** [M] `heads_per_ngram` */
  readonly headsPerNgram: number;
  /** [A] (G − 1)·M */
  readonly heads: number;
  /** De/A: width of a table row */
  readonly rowWidth: number;
  /** `ngram_vocab_size_base` */
  readonly tableSizeBase: number;
  /** `make_ngram_vocab_size_divisible_by` */
  readonly tableRowDivisor: number;
  /** `seed` */
  readonly seed: number;
  /** The first `eos_token_id` of the text config: what the n-gram context falls back to. */
  readonly eosTokenId: number;
}

interface QwenConfigBase {
  /** [H] `hidden_size` */
  readonly hiddenSize: number;
  /** [V] `vocab_size`: rows of the embedding and of the logits, padding included */
  readonly vocabSize: number;
  /** [L] `num_hidden_layers`; equals `layerTypes.length` */
  readonly layerCount: number;
  /** [eps] `rms_norm_eps` */
  readonly rmsNormEps: number;
  readonly layerTypes: readonly QwenLayerType[];
  readonly linearAttention: LinearAttentionConfig;
  readonly attention: AttentionConfig;
  /** `tie_word_embeddings`: `lm_head.weight` may be absent, and is then the embedding. */
  readonly tieWordEmbeddings: boolean;
  /** `max_position_embeddings` */
  readonly maxPositions: number;
  /** Ids that end a turn: `eos_token_id` of the text config, then of the wrapper, duplicates removed. */
  readonly eosTokenIds: readonly number[];
  /** `mtp_num_hidden_layers`: layers of the draft head; 0 when the checkpoint has none. */
  readonly mtpLayerCount: number;
}

export interface Qwen4Config extends QwenConfigBase {
  readonly family: 'qwen4_exp';
  readonly hyperConnections: HyperConnectionConfig;
  readonly moe: MoeConfig;
  /** Present when the model has an attention layer. */
  readonly indexer?: IndexerConfig | undefined;
  /** Present when `ple_layer_ids` is not empty. */
  readonly ple?: PleConfig | undefined;
}

export interface Qwen35Config extends QwenConfigBase {
  readonly family: 'qwen3_5';
  /** [F] `intermediate_size` */
  readonly mlpWidth: number;
}

export type QwenConfig = Qwen4Config | Qwen35Config;
