/**
 * The weights of a DeepSeek V4 checkpoint as a tree: what `inventory.ts` hands over after it has checked every tensor, and
 * what `bind.ts` binds.
 *
 * Invariants: every reference has the shape written beside it and a float dtype (BF16, F16 or F32; a checkpoint may mix
 * them); matrices are stored [out, in] row-major and mean y = W x. Symbols are those of `config-types.ts`.
 */
import type { TensorRef, TensorSlice } from '../../weights/tensor.js';

export interface HyperWeights {
  /** [(2 + H) * H, H * D]; of the head [H, H * D] */
  readonly fn: TensorRef;
  /** as many as `fn` has rows */
  readonly base: TensorRef;
  /** [3]; of the head [1] */
  readonly scale: TensorRef;
}

/** Windows of `rate` tokens pooled into a row of `width` channels; with overlap twice as many channels go in. */
export interface CompressorWeights {
  /** [(1 + overlap) * width, D] */
  readonly values: TensorRef;
  /** [(1 + overlap) * width, D] */
  readonly gates: TensorRef;
  /** [rate, (1 + overlap) * width] */
  readonly ape: TensorRef;
  /** [width] */
  readonly norm: TensorRef;
}

export interface IndexerWeights {
  /** [nI * dI, q_lora] */
  readonly q: TensorRef;
  /** [nI, D] */
  readonly weights: TensorRef;
  /** Width dI. */
  readonly compressor: CompressorWeights;
}

export interface AttentionWeights {
  /** [q_lora, D] */
  readonly qDown: TensorRef;
  /** [q_lora] */
  readonly qNorm: TensorRef;
  /** [nh * hd, q_lora] */
  readonly qUp: TensorRef;
  /** [hd, D] */
  readonly kv: TensorRef;
  /** [hd] */
  readonly kvNorm: TensorRef;
  /** [nh] */
  readonly sink: TensorRef;
  /** [G * R, nh * hd / G] */
  readonly outDown: TensorRef;
  /** [D, G * R] */
  readonly outUp: TensorRef;
  /** In the layers that compress; width hd. */
  readonly compressor?: CompressorWeights | undefined;
  /** In the layers that choose. */
  readonly indexer?: IndexerWeights | undefined;
}

/** `w1`, `w3`, `w2` of the checkpoint. */
export interface ExpertWeights<Matrix = TensorRef> {
  /** [M, D] */
  readonly gateProj: Matrix;
  /** [M, D] */
  readonly upProj: Matrix;
  /** [D, M] */
  readonly downProj: Matrix;
}

export interface MoeWeights {
  /** [E, D] */
  readonly gate: TensorRef;
  /** [E]; absent where a table chooses */
  readonly bias?: TensorRef | undefined;
  /** [vocab, k]: the experts of every token id, where a table chooses; all of them are below E. */
  readonly expertsOfToken?: Int32Array | undefined;
  readonly experts: readonly ExpertWeights<TensorSlice>[];
  readonly shared: ExpertWeights;
}

export interface LayerWeights {
  readonly attnHyper: HyperWeights;
  readonly ffnHyper: HyperWeights;
  /** [D] */
  readonly attnNorm: TensorRef;
  /** [D] */
  readonly ffnNorm: TensorRef;
  readonly attn: AttentionWeights;
  readonly ffn: MoeWeights;
}

export interface DeepseekWeights {
  /** [vocab, D] */
  readonly embed: TensorRef;
  /** [vocab, D] */
  readonly head: TensorRef;
  /** [D] */
  readonly norm: TensorRef;
  readonly headHyper: HyperWeights;
  readonly layers: readonly LayerWeights[];
}
