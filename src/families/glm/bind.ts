/**
 * Binds a checked weight map to a backend's memory: every tensor becomes an index of the weight table.
 *
 * Invariants: vectors become float32; matrices are used as they lie, but for the key half of `kv_b_proj`, of which a
 * transposed copy in the tensor's own precision lets queries go to the latent rows instead of the rows to the heads.
 */
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { expF64 } from '../../numerics/exp.js';
import { toBf16Bits } from '../../numerics/rounding.js';
import type { TensorRef } from '../../weights/tensor.js';
import type { BoundManifold } from '../plan-manifold.js';
import type { BoundScoredExperts } from '../plan-scored-experts.js';
import { WeightBinder, type BoundLinear, type BoundSwiglu, type WeightSource } from '../weight-binder.js';
import type { GlmConfig } from './config-types.js';
import type {
  DsaWeights,
  GlmIndexerWeights,
  GlmLayerWeights,
  GlmMoeWeights,
  GlmWeights,
  HyperConnectionWeights,
  KdaWeights,
} from './weight-map.js';

export interface BoundKda {
  readonly kind: 'kda';
  readonly q: BoundLinear;
  readonly k: BoundLinear;
  readonly v: BoundLinear;
  readonly fA: BoundLinear;
  readonly fB: BoundLinear;
  readonly b: BoundLinear;
  readonly gA: BoundLinear;
  readonly gB: BoundLinear;
  readonly o: BoundLinear;
  /** float32 [3Q, Kc]: taps of queries, keys and values. */
  readonly conv: number;
  /** float32 [nl]: e^A_log */
  readonly expA: number;
  readonly dtBias: number;
  readonly norm: number;
}

export interface BoundGlmIndexer {
  readonly q: BoundLinear;
  readonly k: BoundLinear;
  readonly weights: BoundLinear;
  readonly gate: BoundLinear;
  readonly kGain: number;
  readonly kBias: number;
  readonly ape: number;
}

export interface BoundDsa {
  readonly kind: 'dsa';
  readonly qA: BoundLinear;
  readonly qANorm: number;
  readonly qB: BoundLinear;
  readonly kvA: BoundLinear;
  readonly kvANorm: number;
  /** [nh·C, dk]: of every head the transposed key rows. */
  readonly keysTransposed: number;
  /** [nh·(dk+dv), C]: of every head the value rows are read. */
  readonly kvB: number;
  readonly o: BoundLinear;
  readonly indexer?: BoundGlmIndexer | undefined;
}

export interface BoundGlmLayer {
  readonly attnHyper: BoundManifold;
  readonly mlpHyper: BoundManifold;
  readonly inputNorm: number;
  readonly postNorm: number;
  readonly mixer: BoundKda | BoundDsa;
  readonly mlp:
    { readonly kind: 'sparse'; readonly moe: BoundScoredExperts } | (BoundSwiglu & { readonly kind: 'dense' });
}

export interface BoundGlm {
  readonly embed: number;
  readonly lmHead: BoundLinear;
  readonly norm: number;
  readonly layers: readonly BoundGlmLayer[];
}

export interface GlmBindOptions {
  readonly config: GlmConfig;
  readonly weights: GlmWeights;
  readonly source: WeightSource;
  readonly table: WeightTable;
}

export function bindGlm({ config, weights, source, table }: GlmBindOptions): BoundGlm {
  const b = new WeightBinder(source, table);
  const embed = b.tensor(weights.embedTokens);
  const tied = weights.lmHead === weights.embedTokens;
  return {
    embed,
    lmHead: tied
      ? { weight: embed, bias: -1, outs: config.vocabSize, ins: config.hiddenSize }
      : b.matrix(weights.lmHead),
    norm: b.vector(weights.norm),
    layers: weights.layers.map((layer) => bindLayer(b, config, layer)),
  };
}

/** Bytes of the copies that binding makes of matrices. */
export function copiedBytes({ layers }: GlmWeights, { dsa }: GlmConfig): number {
  return layers.reduce((sum, { mixer }) => {
    if (mixer.kind !== 'dsa') return sum;
    const elementBytes = mixer.kvBProj.dtype === 'BF16' ? 2 : 4;
    return sum + elementBytes * dsa.heads * dsa.latentDim * dsa.keyDim;
  }, 0);
}

function bindLayer(b: WeightBinder, config: GlmConfig, layer: GlmLayerWeights): BoundGlmLayer {
  return {
    attnHyper: bindHyperConnection(b, layer.attnHyper),
    mlpHyper: bindHyperConnection(b, layer.mlpHyper),
    inputNorm: b.vector(layer.inputLayernorm),
    postNorm: b.vector(layer.postAttentionLayernorm),
    mixer: layer.mixer.kind === 'kda' ? bindKda(b, layer.mixer) : bindDsa(b, config, layer.mixer),
    mlp:
      layer.mlp.kind === 'dense'
        ? { kind: 'dense', ...b.swiglu(layer.mlp) }
        : { kind: 'sparse', moe: bindMoe(b, layer.mlp) },
  };
}

function bindHyperConnection(b: WeightBinder, weights: HyperConnectionWeights): BoundManifold {
  return { fn: b.matrix(weights.fn), base: b.vector(weights.base), scale: b.vector(weights.scale) };
}

function bindKda(b: WeightBinder, weights: KdaWeights): BoundKda {
  const taps = [weights.qConv1d, weights.kConv1d, weights.vConv1d].map((tensor) => b.source.float32(tensor));
  const conv = new Float32Array(taps.reduce((sum, { length }) => sum + length, 0));
  taps.forEach((part, i) => {
    conv.set(part, i * part.length);
  });
  return {
    kind: 'kda',
    q: b.matrix(weights.qProj),
    k: b.matrix(weights.kProj),
    v: b.matrix(weights.vProj),
    fA: b.matrix(weights.fAProj),
    fB: b.matrix(weights.fBProj),
    b: b.matrix(weights.bProj),
    gA: b.matrix(weights.gAProj),
    gB: b.matrix(weights.gBProj),
    o: b.matrix(weights.oProj),
    conv: b.table.addFloat32(`${weights.qConv1d.name} and of keys and values`, conv),
    expA: b.vector(weights.aLog, expF64),
    dtBias: b.vector(weights.dtBias),
    norm: b.vector(weights.oNorm),
  };
}

function bindDsa(b: WeightBinder, config: GlmConfig, weights: DsaWeights): BoundDsa {
  return {
    kind: 'dsa',
    qA: b.matrix(weights.qAProj),
    qANorm: b.vector(weights.qALayernorm),
    qB: b.matrix(weights.qBProj),
    kvA: b.matrix(weights.kvAProj),
    kvANorm: b.vector(weights.kvALayernorm),
    keysTransposed: bindKeysTransposed(b, config, weights.kvBProj),
    kvB: b.tensor(weights.kvBProj),
    o: b.matrix(weights.oProj),
    indexer: weights.indexer && bindIndexer(b, weights.indexer),
  };
}

/** Of every head's key rows [dk, C] the transposed [C, dk], in the tensor's own precision. */
function bindKeysTransposed(b: WeightBinder, { dsa }: GlmConfig, tensor: TensorRef): number {
  const { heads, latentDim: C, keyDim: dk, valueDim: dv } = dsa;
  const values = b.source.float32(tensor);
  const transposed = new Float32Array(values.length === 0 ? 0 : heads * C * dk);
  for (let at = 0; at < transposed.length; at++) {
    const [head, column, row] = [Math.floor(at / (C * dk)), Math.floor(at / dk) % C, at % dk];
    transposed[at] = values[(head * (dk + dv) + row) * C + column]!;
  }
  const name = `${tensor.name} [keys, transposed]`;
  if (tensor.dtype !== 'BF16') return b.table.addFloat32(name, transposed);
  return b.table.addBf16Bits(name, Uint16Array.from(transposed, toBf16Bits));
}

function bindIndexer(b: WeightBinder, weights: GlmIndexerWeights): BoundGlmIndexer {
  return {
    q: b.matrix(weights.wqB),
    k: b.matrix(weights.wk),
    weights: b.matrix(weights.weightsProj),
    gate: b.matrix(weights.compressGate),
    kGain: b.vector(weights.kNormWeight),
    kBias: b.vector(weights.kNormBias),
    ape: b.vector(weights.compressApe),
  };
}

function bindMoe(b: WeightBinder, weights: GlmMoeWeights): BoundScoredExperts {
  return {
    router: b.matrix(weights.gate),
    bias: b.vector(weights.correctionBias),
    table: -1,
    shared: b.swiglu(weights.shared),
    ...b.experts(weights.experts),
  };
}
