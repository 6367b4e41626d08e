/**
 * The weights of a Qwen checkpoint as a tree: what `inventory.ts` hands over after it has checked every tensor, and what
 * the plan builder binds. Field names are the checkpoint's, in camelCase.
 *
 * Invariants: every reference has the shape written beside it and a float dtype (BF16, F16 or F32; a checkpoint may mix
 * them); matrices are stored [out, in] row-major and mean y = W x; nothing is converted here, so norm weights are the
 * stored ones (offset from one, but for `linearAttn.norm`, which is plain). Symbols are those of `config.ts`.
 */
import type { TensorRef, TensorSlice } from '../../weights/tensor.js';
import type { NgramConstants } from './ngram-constants.js';

/** A linear map; `bias` only where the configuration has `attention_bias`. */
export interface LinearWeights {
  /** [out, in] */
  readonly weight: TensorRef;
  /** [out] */
  readonly bias?: TensorRef | undefined;
}

/** Gated DeltaNet. */
export interface LinearAttentionWeights {
  readonly kind: 'linear_attention';
  /** [2·Nk·Dk + Nv·Dv, H]: queries of all key heads, keys of all key heads, values of all value heads. */
  readonly inProjQkv: TensorRef;
  /** [Nv·Dv, H] */
  readonly inProjZ: TensorRef;
  /** [Nv, H] */
  readonly inProjB: TensorRef;
  /** [Nv, H] */
  readonly inProjA: TensorRef;
  /** [2·Nk·Dk + Nv·Dv, 1, K]; the last tap is the current token. */
  readonly conv1d: TensorRef;
  /** [Nv] */
  readonly aLog: TensorRef;
  /** [Nv] */
  readonly dtBias: TensorRef;
  /** [Dv], plain weight (no 1 +), shared by all value heads. */
  readonly norm: TensorRef;
  /** [H, Nv·Dv] */
  readonly outProj: TensorRef;
}

/** The indexer of sparse attention (`qwen4_exp`). */
export interface IndexerWeights {
  /** [(Hi + 1)·Di, H]: Hi query heads, then the one key head. */
  readonly indexQkProj: TensorRef;
  /** [Di] */
  readonly qLayernorm: TensorRef;
  /** [Di] */
  readonly kLayernorm: TensorRef;
}

/** Attention with output gate; `indexer` in `qwen4_exp` only. */
export interface AttentionWeights {
  readonly kind: 'attention';
  /** [2·Hq·D, H]: per head D query rows, then D gate rows. */
  readonly qProj: LinearWeights;
  /** [Hkv·D, H] */
  readonly kProj: LinearWeights;
  /** [Hkv·D, H] */
  readonly vProj: LinearWeights;
  /** [H, Hq·D] */
  readonly oProj: LinearWeights;
  /** [D] */
  readonly qNorm: TensorRef;
  /** [D] */
  readonly kNorm: TensorRef;
  readonly indexer?: IndexerWeights | undefined;
}

export type TokenMixerWeights = LinearAttentionWeights | AttentionWeights;

/** The read of a gated residual; the layers' own two also write back through `blockInject`. */
export interface ResidualReadWeights {
  /** [C·H] */
  readonly hcNorm: TensorRef;
  /** [r, C·H] */
  readonly inputMixDown: TensorRef;
  /** [C·H, r] */
  readonly inputMixUp: TensorRef;
}

export interface GatedResidualWeights extends ResidualReadWeights {
  /** [C, C·H] */
  readonly blockInject: TensorRef;
}

export interface SwigluWeights {
  /** [width, H] */
  readonly gateProj: TensorRef;
  /** [width, H] */
  readonly upProj: TensorRef;
  /** [H, width] */
  readonly downProj: TensorRef;
}

/** One routed expert, the same in both layouts: a slice is a whole tensor, or a part of a stack. */
export interface ExpertWeights {
  /** [I, H] */
  readonly gateProj: TensorSlice;
  /** [I, H] */
  readonly upProj: TensorSlice;
  /** [H, I] */
  readonly downProj: TensorSlice;
}

/** How the experts lie in the file: a tensor each, or stacked [E, 2·I, H] (gate rows first) and [E, H, I]. */
export type ExpertLayout = 'per-expert' | 'stacked';

export interface MoeWeights {
  /** [E, H] */
  readonly gate: TensorRef;
  /** [1, H] */
  readonly sharedExpertGate: TensorRef;
  /** Width Is. */
  readonly sharedExpert: SwigluWeights;
  readonly layout: ExpertLayout;
  /** E entries, by expert index. */
  readonly experts: readonly ExpertWeights[];
}

/** The hashed n-gram table: shards in numeric order; row ids index their concatenation. Never loaded whole. */
export interface NgramTableWeights {
  /** Each [rows of the shard, De/A]; row counts may differ. */
  readonly shards: readonly TensorRef[];
  /** Sum over the shards; equals `constants.rows`. */
  readonly rows: number;
  /** De/A */
  readonly width: number;
}

export interface PleWeights {
  /** [C·H, De] */
  readonly keyProj: TensorRef;
  /** [H, De] */
  readonly valueProj: TensorRef;
  /** [C·H] */
  readonly normKey: TensorRef;
  /** [C·H] */
  readonly normQuery: TensorRef;
  /** [C·H] */
  readonly normConv: TensorRef;
  /** [C·H, 1, Kp] */
  readonly conv1d: TensorRef;
  /** Of the formulas; stored copies have been compared with them. */
  readonly constants: NgramConstants;
  readonly table: NgramTableWeights;
}

export interface Qwen4LayerWeights {
  readonly mixer: TokenMixerWeights;
  readonly attnHyperConnection: GatedResidualWeights;
  readonly mlpHyperConnection: GatedResidualWeights;
  readonly mlp: MoeWeights;
  /** In the layers of `ple_layer_ids`. */
  readonly ple?: PleWeights | undefined;
}

export interface Qwen35LayerWeights {
  readonly mixer: TokenMixerWeights;
  /** [H] */
  readonly inputLayernorm: TensorRef;
  /** [H] */
  readonly postAttentionLayernorm: TensorRef;
  /** Width F. */
  readonly mlp: SwigluWeights;
}

/** The draft head (`mtp.*`): one full-attention layer without PLE over the trunk's hidden streams and the next token. */
export interface MtpWeights {
  /** [C·H]: one mean over all streams. */
  readonly preFcNormHidden: TensorRef;
  /** [H] */
  readonly preFcNormEmbedding: TensorRef;
  /** [H, H]: one map for all streams. */
  readonly fcHidden: TensorRef;
  /** [H, H] */
  readonly fcEmbedding: TensorRef;
  readonly layer: Qwen4LayerWeights;
  readonly hyperConnectionMixer: ResidualReadWeights;
}

interface QwenWeightsBase {
  /** Prefix of the text tensors in this checkpoint. */
  readonly root: 'model' | 'model.language_model';
  /** [V, H] */
  readonly embedTokens: TensorRef;
  /** [V, H]; the same object as `embedTokens` when tied. */
  readonly lmHead: TensorRef;
}

export interface Qwen4Weights extends QwenWeightsBase {
  readonly family: 'qwen4_exp';
  readonly layers: readonly Qwen4LayerWeights[];
  readonly hyperConnectionMixer: ResidualReadWeights;
  /** Absent when the checkpoint has no draft head, or it is not wanted. */
  readonly mtp?: MtpWeights | undefined;
}

export interface Qwen35Weights extends QwenWeightsBase {
  readonly family: 'qwen3_5';
  readonly layers: readonly Qwen35LayerWeights[];
  /** [H] */
  readonly norm: TensorRef;
}

export type QwenWeights = Qwen4Weights | Qwen35Weights;
