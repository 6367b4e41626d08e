/**
 * The weights of a GLM checkpoint as a tree: what `inventory.ts` hands over after it has checked every tensor, and what the
 * binder binds. Field names are the checkpoint's, in camelCase.
 *
 * Invariants: every reference has the shape written beside it and a float dtype (BF16, F16 or F32; a checkpoint may mix
 * them); matrices are stored [out, in] row-major and mean y = W x; nothing is converted here. Symbols are those of
 * `config-types.ts`; Q = nl·dl.
 */
import type { TensorRef, TensorSlice } from '../../weights/tensor.js';

/** A manifold hyper-connection. */
export interface HyperConnectionWeights {
  /** [(2+H)·H, H·D] */
  readonly fn: TensorRef;
  /** [(2+H)·H] */
  readonly base: TensorRef;
  /** [3] */
  readonly scale: TensorRef;
}

export interface KdaWeights {
  readonly kind: 'kda';
  /** [Q, D] each */
  readonly qProj: TensorRef;
  readonly kProj: TensorRef;
  readonly vProj: TensorRef;
  /** [Q, 1, Kc] each; the last tap is the current token. */
  readonly qConv1d: TensorRef;
  readonly kConv1d: TensorRef;
  readonly vConv1d: TensorRef;
  /** [dl, D], [Q, dl] */
  readonly fAProj: TensorRef;
  readonly fBProj: TensorRef;
  /** [Q] */
  readonly dtBias: TensorRef;
  /** [nl] */
  readonly aLog: TensorRef;
  /** [nl, D] */
  readonly bProj: TensorRef;
  /** [dl, D], [Q, dl] */
  readonly gAProj: TensorRef;
  readonly gBProj: TensorRef;
  /** [dl], shared by all heads */
  readonly oNorm: TensorRef;
  /** [D, Q] */
  readonly oProj: TensorRef;
}

export interface GlmIndexerWeights {
  /** [nI·dI, q_lora_rank] */
  readonly wqB: TensorRef;
  /** [dI, D] */
  readonly wk: TensorRef;
  /** [dI] each */
  readonly kNormWeight: TensorRef;
  readonly kNormBias: TensorRef;
  /** [nI, D] */
  readonly weightsProj: TensorRef;
  /** [dI, D] */
  readonly compressGate: TensorRef;
  /** [K, dI] */
  readonly compressApe: TensorRef;
}

export interface DsaWeights {
  readonly kind: 'dsa';
  /** [q_lora_rank, D], [q_lora_rank] */
  readonly qAProj: TensorRef;
  readonly qALayernorm: TensorRef;
  /** [nh·dk, q_lora_rank] */
  readonly qBProj: TensorRef;
  /** [C, D], [C] */
  readonly kvAProj: TensorRef;
  readonly kvALayernorm: TensorRef;
  /** [nh·(dk+dv), C]: per head dk key rows, then dv value rows. */
  readonly kvBProj: TensorRef;
  /** [D, nh·dv] */
  readonly oProj: TensorRef;
  /** In full layers only. */
  readonly indexer?: GlmIndexerWeights | undefined;
}

export interface GlmSwigluWeights {
  /** [width, D] */
  readonly gateProj: TensorRef;
  readonly upProj: TensorRef;
  /** [D, width] */
  readonly downProj: TensorRef;
}

export interface GlmExpertWeights {
  /** [M, D] */
  readonly gateProj: TensorSlice;
  readonly upProj: TensorSlice;
  /** [D, M] */
  readonly downProj: TensorSlice;
}

export interface GlmMoeWeights {
  readonly kind: 'sparse';
  /** [E, D] */
  readonly gate: TensorRef;
  /** [E] */
  readonly correctionBias: TensorRef;
  /** E entries. */
  readonly experts: readonly GlmExpertWeights[];
  /** Width M times the number of shared experts. */
  readonly shared: GlmSwigluWeights;
}

export interface GlmLayerWeights {
  readonly attnHyper: HyperConnectionWeights;
  readonly mlpHyper: HyperConnectionWeights;
  /** [D] each */
  readonly inputLayernorm: TensorRef;
  readonly postAttentionLayernorm: TensorRef;
  readonly mixer: KdaWeights | DsaWeights;
  readonly mlp: GlmMoeWeights | (GlmSwigluWeights & { readonly kind: 'dense' });
}

export interface GlmWeights {
  /** [V, D] */
  readonly embedTokens: TensorRef;
  /** [V, D]; the same object as `embedTokens` when tied. */
  readonly lmHead: TensorRef;
  /** [D] */
  readonly norm: TensorRef;
  readonly layers: readonly GlmLayerWeights[];
}
