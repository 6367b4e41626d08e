/**
 * Takes the tensors that a configuration requires out of a checkpoint, checks each, and hands over the weight map with a
 * report of what was left. Tensor names stand here and nowhere else.
 *
 * Invariants: every reference in the map has been checked for presence, float dtype and exact shape, so binding cannot
 * meet a surprise; whatever is not taken is in the report. No data is read.
 */
import type { Checkpoint } from '../../weights/checkpoint.js';
import type { TensorRef, TensorSlice } from '../../weights/tensor.js';
import { TensorTaker, type TensorSupply } from '../../weights/tensor-taker.js';
import { findRoot, type TextRoot } from '../checkpoint-root.js';
import { reportLoad, type LoadReport } from '../load-report.js';
import { refuseQuantisedTensors } from '../quantised.js';
import type { GlmConfig } from './config-types.js';
import type {
  DsaWeights,
  GlmIndexerWeights,
  GlmLayerWeights,
  GlmMoeWeights,
  GlmSwigluWeights,
  GlmWeights,
  HyperConnectionWeights,
  KdaWeights,
} from './weight-map.js';

export interface GlmInventory {
  readonly weights: GlmWeights;
  readonly report: LoadReport;
}

/** Parts of a published checkpoint that are known but not served. */
const UNSERVED_PARTS = ['draft head', 'vision tower'] as const;

/**
 * @throws tensor_missing, tensor_mismatch (naming the tensor, what it is and what it must be), config_unsupported for a
 * checkpoint of another layout or of quantised weights
 */
export function inventoryGlm(checkpoint: Checkpoint, config: GlmConfig): GlmInventory {
  refuseQuantisedTensors(checkpoint);
  const tensors = new TensorTaker(checkpoint);
  const root = findRoot(checkpoint);
  const weights = takeGlm(tensors, root, config);
  const report = reportLoad(checkpoint, {
    taken: tensors.taken,
    parts: UNSERVED_PARTS,
    partOf: (name) => unservedPart(name, root, config.layerCount),
  });
  return { weights, report };
}

/** Layers behind the last one are the draft head; `shared_head` is its own norm and output map. */
function unservedPart(name: string, root: TextRoot, layerCount: number): (typeof UNSERVED_PARTS)[number] | undefined {
  if (name.startsWith('model.visual.')) return 'vision tower';
  const layer = name.startsWith(`${root}.layers.`) ? /^\d{1,5}(?=\.)/.exec(name.slice(`${root}.layers.`.length)) : null;
  if (layer && Number(layer[0]) >= layerCount) return 'draft head';
  return name.includes('.shared_head.') ? 'draft head' : undefined;
}

/** The weight map alone, out of any supply of tensors. */
export function takeGlm(t: TensorSupply, root: TextRoot, c: GlmConfig): GlmWeights {
  const ends = [c.vocabSize, c.hiddenSize];
  const embedTokens = t.take(`${root}.embed_tokens.weight`, ends);
  const tied = c.tieWordEmbeddings && !t.has('lm_head.weight');
  return {
    embedTokens,
    lmHead: tied ? embedTokens : t.take('lm_head.weight', ends),
    norm: t.take(`${root}.norm.weight`, [c.hiddenSize]),
    layers: c.layerTypes.map((_, n) => takeLayer(t, `${root}.layers.${n}`, c, n)),
  };
}

function takeLayer(t: TensorSupply, prefix: string, c: GlmConfig, n: number): GlmLayerWeights {
  const D = c.hiddenSize;
  return {
    attnHyper: takeHyperConnection(t, `${prefix}.hc_attn`, c),
    mlpHyper: takeHyperConnection(t, `${prefix}.hc_ffn`, c),
    inputLayernorm: t.take(`${prefix}.input_layernorm.weight`, [D]),
    postAttentionLayernorm: t.take(`${prefix}.post_attention_layernorm.weight`, [D]),
    mixer:
      c.layerTypes[n] === 'kda'
        ? takeKda(t, `${prefix}.self_attn`, c)
        : takeDsa(t, `${prefix}.self_attn`, c, c.indexerTypes[n] === 'full'),
    mlp:
      c.mlpTypes[n] === 'dense'
        ? { kind: 'dense', ...takeSwiglu(t, `${prefix}.mlp`, D, c.denseWidth) }
        : takeMoe(t, `${prefix}.mlp`, c),
  };
}

function takeHyperConnection(t: TensorSupply, prefix: string, c: GlmConfig): HyperConnectionWeights {
  const { streams: H } = c.hyperConnections;
  const width = (2 + H) * H;
  return {
    fn: t.take(`${prefix}_fn`, [width, H * c.hiddenSize]),
    base: t.take(`${prefix}_base`, [width]),
    scale: t.take(`${prefix}_scale`, [3]),
  };
}

function takeKda(t: TensorSupply, prefix: string, c: GlmConfig): KdaWeights {
  const D = c.hiddenSize;
  const { heads: nl, headDim: dl, convKernel: Kc } = c.kda;
  const Q = nl * dl;
  return {
    kind: 'kda',
    qProj: t.take(`${prefix}.q_proj.weight`, [Q, D]),
    kProj: t.take(`${prefix}.k_proj.weight`, [Q, D]),
    vProj: t.take(`${prefix}.v_proj.weight`, [Q, D]),
    qConv1d: t.take(`${prefix}.q_conv1d.weight`, [Q, 1, Kc]),
    kConv1d: t.take(`${prefix}.k_conv1d.weight`, [Q, 1, Kc]),
    vConv1d: t.take(`${prefix}.v_conv1d.weight`, [Q, 1, Kc]),
    fAProj: t.take(`${prefix}.f_a_proj.weight`, [dl, D]),
    fBProj: t.take(`${prefix}.f_b_proj.weight`, [Q, dl]),
    dtBias: t.take(`${prefix}.dt_bias`, [Q]),
    aLog: t.take(`${prefix}.A_log`, [nl]),
    bProj: t.take(`${prefix}.b_proj.weight`, [nl, D]),
    gAProj: t.take(`${prefix}.g_a_proj.weight`, [dl, D]),
    gBProj: t.take(`${prefix}.g_b_proj.weight`, [Q, dl]),
    oNorm: t.take(`${prefix}.o_norm.weight`, [dl]),
    oProj: t.take(`${prefix}.o_proj.weight`, [D, Q]),
  };
}

function takeDsa(t: TensorSupply, prefix: string, c: GlmConfig, full: boolean): DsaWeights {
  const D = c.hiddenSize;
  const { heads: nh, queryRank, latentDim: C, keyDim: dk, valueDim: dv } = c.dsa;
  return {
    kind: 'dsa',
    qAProj: t.take(`${prefix}.q_a_proj.weight`, [queryRank, D]),
    qALayernorm: t.take(`${prefix}.q_a_layernorm.weight`, [queryRank]),
    qBProj: t.take(`${prefix}.q_b_proj.weight`, [nh * dk, queryRank]),
    kvAProj: t.take(`${prefix}.kv_a_proj_with_mqa.weight`, [C, D]),
    kvALayernorm: t.take(`${prefix}.kv_a_layernorm.weight`, [C]),
    kvBProj: t.take(`${prefix}.kv_b_proj.weight`, [nh * (dk + dv), C]),
    oProj: t.take(`${prefix}.o_proj.weight`, [D, nh * dv]),
    indexer: full ? takeIndexer(t, `${prefix}.indexer`, c) : undefined,
  };
}

function takeIndexer(t: TensorSupply, prefix: string, c: GlmConfig): GlmIndexerWeights {
  const D = c.hiddenSize;
  const { heads: nI, headDim: dI, poolTokens: K } = c.indexer;
  return {
    wqB: t.take(`${prefix}.wq_b.weight`, [nI * dI, c.dsa.queryRank]),
    wk: t.take(`${prefix}.wk.weight`, [dI, D]),
    kNormWeight: t.take(`${prefix}.k_norm.weight`, [dI]),
    kNormBias: t.take(`${prefix}.k_norm.bias`, [dI]),
    weightsProj: t.take(`${prefix}.weights_proj.weight`, [nI, D]),
    compressGate: t.take(`${prefix}.index_kpool_compress_gate`, [dI, D]),
    compressApe: t.take(`${prefix}.index_kpool_compress_ape`, [K, dI]),
  };
}

function takeSwiglu(t: TensorSupply, prefix: string, D: number, width: number): GlmSwigluWeights {
  return {
    gateProj: t.take(`${prefix}.gate_proj.weight`, [width, D]),
    upProj: t.take(`${prefix}.up_proj.weight`, [width, D]),
    downProj: t.take(`${prefix}.down_proj.weight`, [D, width]),
  };
}

function takeMoe(t: TensorSupply, prefix: string, c: GlmConfig): GlmMoeWeights {
  const D = c.hiddenSize;
  const { experts, expertWidth: M, sharedWidth } = c.moe;
  const whole = (tensor: TensorRef, rows: number, columns: number): TensorSlice => ({
    tensor,
    byteOffset: 0,
    byteLength: tensor.byteLength,
    shape: [rows, columns],
  });
  return {
    kind: 'sparse',
    gate: t.take(`${prefix}.gate.weight`, [experts, D]),
    correctionBias: t.take(`${prefix}.gate.e_score_correction_bias`, [experts]),
    experts: Array.from({ length: experts }, (_, e) => {
      const { gateProj, upProj, downProj } = takeSwiglu(t, `${prefix}.experts.${e}`, D, M);
      return { gateProj: whole(gateProj, M, D), upProj: whole(upProj, M, D), downProj: whole(downProj, D, M) };
    }),
    shared: takeSwiglu(t, `${prefix}.shared_experts`, D, sharedWidth),
  };
}
