/**
 * Binds a checked weight map to a backend's memory: every tensor becomes an index of the weight table.
 *
 * Invariants: matrices are never converted or copied here; vectors become float32; norm gains are plain (no 1 +); the
 * expert table of a token id is bound as int32 words, which the table lists as F32.
 */
import type { WeightTable } from '../../engine/plan/weight-table.js';
import type { BoundManifold } from '../plan-manifold.js';
import type { BoundScoredExperts } from '../plan-scored-experts.js';
import { WeightBinder, type BoundLinear, type WeightSource } from '../weight-binder.js';
import type { DeepseekConfig } from './config-types.js';
import { ropeTable } from './rope.js';
import type {
  AttentionWeights,
  CompressorWeights,
  DeepseekWeights,
  HyperWeights,
  LayerWeights,
  MoeWeights,
} from './weight-map.js';

export interface BoundCompressor {
  readonly values: BoundLinear;
  readonly gates: BoundLinear;
  readonly ape: number;
  readonly norm: number;
}

export interface BoundIndexer {
  readonly q: BoundLinear;
  readonly weights: BoundLinear;
  readonly compressor: BoundCompressor;
}

export interface BoundAttention {
  readonly qDown: BoundLinear;
  readonly qNorm: number;
  readonly qUp: BoundLinear;
  readonly kv: BoundLinear;
  readonly kvNorm: number;
  readonly sink: number;
  readonly outDown: BoundLinear;
  readonly outUp: BoundLinear;
  readonly compressor?: BoundCompressor | undefined;
  readonly indexer?: BoundIndexer | undefined;
  /** The rotary table of the layer's kind. */
  readonly rope: number;
}

export interface BoundLayer {
  readonly attnHyper: BoundManifold;
  readonly ffnHyper: BoundManifold;
  readonly attnNorm: number;
  readonly ffnNorm: number;
  readonly attn: BoundAttention;
  readonly ffn: BoundScoredExperts;
}

export interface BoundDeepseek {
  readonly embed: number;
  readonly head: BoundLinear;
  readonly norm: number;
  readonly headHyper: BoundManifold;
  readonly layers: readonly BoundLayer[];
}

export interface BindOptions {
  readonly config: DeepseekConfig;
  readonly weights: DeepseekWeights;
  readonly source: WeightSource;
  readonly table: WeightTable;
  /** Positions that the rotary tables cover. */
  readonly positions: number;
}

/** Rotary tables that the layers of a model use. */
export function ropeTableCount({ layerTypes }: DeepseekConfig): number {
  return new Set(layerTypes.map((type) => type === 'sliding_attention')).size;
}

export function bindDeepseek({ config, weights, source, table, positions }: BindOptions): BoundDeepseek {
  const binder = new WeightBinder(source, table);
  const ropes = new Map<string, number>();
  const rope = (kind: 'main' | 'compress'): number => {
    const index =
      ropes.get(kind) ??
      table.addFloat32(`rotary table, ${kind}`, ropeTable(config.rope[kind], config.attention.rotaryDim, positions));
    ropes.set(kind, index);
    return index;
  };
  return {
    embed: binder.tensor(weights.embed),
    head: binder.matrix(weights.head),
    norm: binder.vector(weights.norm),
    headHyper: bindHyper(binder, weights.headHyper),
    layers: weights.layers.map((layer, n) =>
      bindLayer(binder, layer, rope(config.layerTypes[n] === 'sliding_attention' ? 'main' : 'compress')),
    ),
  };
}

function bindLayer(binder: WeightBinder, layer: LayerWeights, rope: number): BoundLayer {
  return {
    attnHyper: bindHyper(binder, layer.attnHyper),
    ffnHyper: bindHyper(binder, layer.ffnHyper),
    attnNorm: binder.vector(layer.attnNorm),
    ffnNorm: binder.vector(layer.ffnNorm),
    attn: bindAttention(binder, layer.attn, rope),
    ffn: bindMoe(binder, layer.ffn),
  };
}

function bindHyper(binder: WeightBinder, { fn, base, scale }: HyperWeights): BoundManifold {
  return { fn: binder.matrix(fn), base: binder.vector(base), scale: binder.vector(scale) };
}

function bindCompressor(binder: WeightBinder, weights: CompressorWeights): BoundCompressor {
  return {
    values: binder.matrix(weights.values),
    gates: binder.matrix(weights.gates),
    ape: binder.vector(weights.ape),
    norm: binder.vector(weights.norm),
  };
}

function bindAttention(binder: WeightBinder, weights: AttentionWeights, rope: number): BoundAttention {
  const { compressor, indexer } = weights;
  return {
    qDown: binder.matrix(weights.qDown),
    qNorm: binder.vector(weights.qNorm),
    qUp: binder.matrix(weights.qUp),
    kv: binder.matrix(weights.kv),
    kvNorm: binder.vector(weights.kvNorm),
    sink: binder.vector(weights.sink),
    outDown: binder.matrix(weights.outDown),
    outUp: binder.matrix(weights.outUp),
    compressor: compressor && bindCompressor(binder, compressor),
    indexer: indexer && {
      q: binder.matrix(indexer.q),
      weights: binder.matrix(indexer.weights),
      compressor: bindCompressor(binder, indexer.compressor),
    },
    rope,
  };
}

function bindMoe(binder: WeightBinder, weights: MoeWeights): BoundScoredExperts {
  const { expertsOfToken: experts } = weights;
  return {
    router: binder.matrix(weights.gate),
    bias: weights.bias ? binder.vector(weights.bias) : -1,
    table: experts
      ? binder.table.addFloat32(
          'experts of tokens',
          new Float32Array(experts.buffer, experts.byteOffset, experts.length),
        )
      : -1,
    shared: binder.swiglu(weights.shared),
    ...binder.experts(weights.experts),
  };
}
