/**
 * Binds a checked weight map to a backend's memory: every tensor becomes an index of the weight table, small vectors are
 * converted to float32 the way the activation law wants them.
 *
 * Invariants: zero-centred norm gains become 1 + w in float32 (under MTPLX's points rounded to bfloat16, as its packs store
 * them); `linear_attn.norm` is plain; matrices are never converted or copied here; the n-gram table is not bound at all.
 */
import { PlumblineError } from '../../errors.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { expF64 } from '../../numerics/exp.js';
import { sigmoidTableBf16 } from '../../numerics/gate-tables.js';
import { roundBf16 } from '../../numerics/rounding.js';
import type { TensorRef } from '../../weights/tensor.js';
import {
  WeightBinder,
  type BoundExperts,
  type BoundLinear,
  type BoundSwiglu,
  type WeightSource,
} from '../weight-binder.js';
import type { QwenConfig } from './config-types.js';
import type {
  AttentionWeights,
  GatedResidualWeights,
  LinearAttentionWeights,
  LinearWeights,
  MoeWeights,
  MtpWeights,
  PleWeights,
  QwenWeights,
  ResidualReadWeights,
} from './weight-map.js';

type Bound<T> = { readonly [K in keyof T]: number };

export interface BoundResidualRead {
  readonly norm: number;
  readonly down: BoundLinear;
  readonly up: BoundLinear;
  /** Absent in the last read. */
  readonly inject?: BoundLinear | undefined;
}

export interface BoundLinearAttention {
  readonly kind: 'linear_attention';
  readonly qkv: BoundLinear;
  readonly z: BoundLinear;
  readonly b: BoundLinear;
  readonly a: BoundLinear;
  readonly out: BoundLinear;
  readonly vectors: Bound<{ conv: 0; negExpA: 0; dtBias: 0; norm: 0 }>;
}

export interface BoundAttention {
  readonly kind: 'attention';
  readonly q: BoundLinear;
  readonly k: BoundLinear;
  readonly v: BoundLinear;
  readonly o: BoundLinear;
  readonly qNorm: number;
  readonly kNorm: number;
  readonly indexer?: { readonly qk: BoundLinear; readonly qNorm: number; readonly kNorm: number } | undefined;
}

export interface BoundMoe extends BoundExperts {
  readonly router: BoundLinear;
  readonly sharedGate: BoundLinear;
  readonly shared: BoundSwiglu;
}

export interface BoundPle {
  readonly key: BoundLinear;
  readonly value: BoundLinear;
  readonly vectors: Bound<{ normKey: 0; normQuery: 0; normConv: 0; conv: 0 }>;
}

export interface BoundLayer {
  readonly mixer: BoundLinearAttention | BoundAttention;
  readonly body:
    | {
        readonly kind: 'qwen4_exp';
        readonly attn: BoundResidualRead;
        readonly mlp: BoundResidualRead;
        readonly moe: BoundMoe;
      }
    | { readonly kind: 'qwen3_5'; readonly inputNorm: number; readonly postNorm: number; readonly mlp: BoundSwiglu };
  readonly ple?: BoundPle | undefined;
}

/** The draft head; its embedding and its output map are the trunk's. */
export interface BoundMtp {
  readonly hiddenNorm: number;
  readonly embeddingNorm: number;
  readonly fcHidden: BoundLinear;
  readonly fcEmbedding: BoundLinear;
  readonly attn: BoundResidualRead;
  readonly mixer: BoundAttention;
  readonly mlp: BoundResidualRead;
  readonly moe: BoundMoe;
  readonly last: BoundResidualRead;
}

export interface BoundQwen {
  readonly embed: number;
  readonly lmHead: BoundLinear;
  readonly layers: readonly BoundLayer[];
  readonly last:
    { readonly kind: 'read'; readonly read: BoundResidualRead } | { readonly kind: 'norm'; readonly norm: number };
  readonly mtp?: BoundMtp | undefined;
  /** float32 [positions, Dr], or -1 without attention layers. */
  readonly rope: number;
  /** Sigmoid tables; -1 in float32. */
  readonly standaloneTable: number;
  readonly fusedTable: number;
}

export interface BindOptions {
  readonly config: QwenConfig;
  readonly weights: QwenWeights;
  readonly law: ActivationLaw;
  readonly source: WeightSource;
  readonly table: WeightTable;
  /** Positions that the rotary table covers. */
  readonly positions: number;
}

export function bindQwen(options: BindOptions): BoundQwen {
  return new Binder(options).bind();
}

class Binder extends WeightBinder {
  readonly #o: BindOptions;

  constructor(options: BindOptions) {
    super(options.source, options.table);
    this.#o = options;
  }

  bind(): BoundQwen {
    const { config, weights, law, table } = this.#o;
    const embed = this.tensor(weights.embedTokens);
    const lmHead =
      weights.lmHead === weights.embedTokens
        ? { weight: embed, bias: -1, outs: config.vocabSize, ins: config.hiddenSize }
        : this.matrix(weights.lmHead);
    const layers =
      weights.family === 'qwen4_exp'
        ? weights.layers.map((layer): BoundLayer => ({
            mixer: this.#mixer(layer.mixer),
            body: {
              kind: 'qwen4_exp',
              attn: this.#gatedResidual(layer.attnHyperConnection),
              mlp: this.#gatedResidual(layer.mlpHyperConnection),
              moe: this.#moe(layer.mlp),
            },
            ple: layer.ple && this.#ple(layer.ple),
          }))
        : weights.layers.map((layer): BoundLayer => ({
            mixer: this.#mixer(layer.mixer),
            body: {
              kind: 'qwen3_5',
              inputNorm: this.#gain(layer.inputLayernorm),
              postNorm: this.#gain(layer.postAttentionLayernorm),
              mlp: this.swiglu(layer.mlp),
            },
          }));
    return {
      embed,
      lmHead,
      layers,
      last:
        weights.family === 'qwen4_exp'
          ? { kind: 'read', read: this.#residualRead(weights.hyperConnectionMixer) }
          : { kind: 'norm', norm: this.#gain(weights.norm) },
      mtp: weights.family === 'qwen4_exp' && weights.mtp ? this.#mtp(weights.mtp) : undefined,
      rope: config.layerTypes.includes('attention') ? this.#rope() : -1,
      standaloneTable:
        law.act === 1 ? table.addBf16Bits('sigmoid table, standalone', sigmoidTableBf16('standalone')) : -1,
      fusedTable: law.act === 1 ? table.addBf16Bits('sigmoid table, fused', sigmoidTableBf16('fused')) : -1,
    };
  }

  #linear({ weight, bias }: LinearWeights): BoundLinear {
    return { ...this.matrix(weight), bias: bias ? this.vector(bias) : -1 };
  }

  /** Gain of a zero-centred norm. */
  #gain(tensor: TensorRef): number {
    return this.vector(tensor, this.#o.law.mtplx ? (w) => roundBf16(Math.fround(1 + w)) : (w) => 1 + w);
  }

  #residualRead(weights: ResidualReadWeights): BoundResidualRead {
    return {
      norm: this.#gain(weights.hcNorm),
      down: this.matrix(weights.inputMixDown),
      up: this.matrix(weights.inputMixUp),
    };
  }

  #gatedResidual(weights: GatedResidualWeights): BoundResidualRead {
    return { ...this.#residualRead(weights), inject: this.matrix(weights.blockInject) };
  }

  #mixer(weights: LinearAttentionWeights | AttentionWeights): BoundLinearAttention | BoundAttention {
    return weights.kind === 'linear_attention' ? this.#linearAttention(weights) : this.#attention(weights);
  }

  #linearAttention(weights: LinearAttentionWeights): BoundLinearAttention {
    return {
      kind: 'linear_attention',
      qkv: this.matrix(weights.inProjQkv),
      z: this.matrix(weights.inProjZ),
      b: this.matrix(weights.inProjB),
      a: this.matrix(weights.inProjA),
      out: this.matrix(weights.outProj),
      vectors: {
        conv: this.vector(weights.conv1d),
        negExpA: this.vector(weights.aLog, (value) => -expF64(value)),
        dtBias: this.vector(weights.dtBias),
        norm: this.vector(weights.norm),
      },
    };
  }

  #attention(weights: AttentionWeights): BoundAttention {
    const { indexer } = weights;
    return {
      kind: 'attention',
      q: this.#linear(weights.qProj),
      k: this.#linear(weights.kProj),
      v: this.#linear(weights.vProj),
      o: this.#linear(weights.oProj),
      qNorm: this.#gain(weights.qNorm),
      kNorm: this.#gain(weights.kNorm),
      indexer: indexer && {
        qk: this.matrix(indexer.indexQkProj),
        qNorm: this.#gain(indexer.qLayernorm),
        kNorm: this.#gain(indexer.kLayernorm),
      },
    };
  }

  #moe(weights: MoeWeights): BoundMoe {
    return {
      router: this.matrix(weights.gate),
      sharedGate: this.matrix(weights.sharedExpertGate),
      shared: this.swiglu(weights.sharedExpert),
      ...this.experts(weights.experts),
    };
  }

  #mtp(weights: MtpWeights): BoundMtp {
    const { layer } = weights;
    if (layer.mixer.kind !== 'attention') throw new PlumblineError('internal_error', 'a draft head without attention');
    return {
      hiddenNorm: this.#gain(weights.preFcNormHidden),
      embeddingNorm: this.#gain(weights.preFcNormEmbedding),
      fcHidden: this.matrix(weights.fcHidden),
      fcEmbedding: this.matrix(weights.fcEmbedding),
      attn: this.#gatedResidual(layer.attnHyperConnection),
      mixer: this.#attention(layer.mixer),
      mlp: this.#gatedResidual(layer.mlpHyperConnection),
      moe: this.#moe(layer.mlp),
      last: this.#residualRead(weights.hyperConnectionMixer),
    };
  }

  #ple(weights: PleWeights): BoundPle {
    return {
      key: this.matrix(weights.keyProj),
      value: this.matrix(weights.valueProj),
      vectors: {
        normKey: this.#gain(weights.normKey),
        normQuery: this.#gain(weights.normQuery),
        normConv: this.#gain(weights.normConv),
        conv: this.vector(weights.conv1d),
      },
    };
  }

  /** Cosines, then sines, of every position: frequencies and angles in float32; A-rounded unless MTPLX's points hold. */
  #rope(): number {
    const { config, law, positions, table } = this.#o;
    const { rotaryDim, ropeTheta } = config.attention;
    const half = rotaryDim / 2;
    const round = law.act === 1 && law.mtplx === 0 ? roundBf16 : Math.fround;
    const frequencies = Array.from({ length: half }, (_, i) =>
      Math.fround(1 / Math.fround(ropeTheta ** Math.fround((2 * i) / rotaryDim))),
    );
    const values = new Float32Array(positions * rotaryDim);
    for (let position = 0; position < positions; position++) {
      for (let i = 0; i < half; i++) {
        const angle = Math.fround(position * frequencies[i]!);
        values[position * rotaryDim + i] = round(Math.cos(angle));
        values[position * rotaryDim + half + i] = round(Math.sin(angle));
      }
    }
    return table.addFloat32('rotary table', values);
  }
}
