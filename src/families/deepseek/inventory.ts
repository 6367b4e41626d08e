/**
 * Takes the tensors that a configuration requires out of a checkpoint, checks each, and hands over the weight map with a
 * report of what was left.
 *
 * Invariants: every reference in the map has been checked for presence, float dtype and exact shape, and every entry of an
 * expert table for its range, so binding cannot meet a surprise; the extra prediction layers are known and not served. Of
 * the data only the expert tables are read.
 */
import { PlumblineError } from '../../errors.js';
import type { Checkpoint } from '../../weights/checkpoint.js';
import { quoteName } from '../../weights/strict-json.js';
import { formatShape, type TensorRef, type TensorSlice } from '../../weights/tensor.js';
import { TensorTaker } from '../../weights/tensor-taker.js';
import { reportLoad, type LoadReport } from '../load-report.js';
import { refuseQuantisedTensors } from '../quantised.js';
import type { DeepseekConfig } from './config-types.js';
import { isExtraLayer, spelled } from './names.js';
import type {
  AttentionWeights,
  CompressorWeights,
  DeepseekWeights,
  ExpertWeights,
  HyperWeights,
  IndexerWeights,
  LayerWeights,
  MoeWeights,
} from './weight-map.js';

/** Parts that a checkpoint may have beside what is served. */
const EXTRA_LAYERS = 'extra prediction layers (mtp)';

export interface DeepseekInventory {
  readonly weights: DeepseekWeights;
  readonly report: LoadReport;
}

/** What weights are taken from, by their published names. */
export interface DeepseekSupply {
  /** A float tensor of exactly this shape. */
  take(name: string, shape: readonly number[]): TensorRef;
  /** An integer matrix, every entry from 0 to `below` - 1. */
  takeTable(name: string, shape: readonly [number, number], below: number): Int32Array;
}

/**
 * @throws tensor_missing, tensor_mismatch (naming the tensor, what it is and what it must be), config_unsupported for a
 * quantised release
 */
export function inventoryDeepseek(checkpoint: Checkpoint, config: DeepseekConfig): DeepseekInventory {
  refuseQuantisedTensors(checkpoint, isExtraLayer);
  const supply = new CheckpointSupply(checkpoint);
  const weights = takeDeepseek(supply, config);
  const report = reportLoad(checkpoint, {
    taken: supply.taken,
    parts: [EXTRA_LAYERS],
    partOf: (name) => (isExtraLayer(name) ? EXTRA_LAYERS : undefined),
  });
  return { weights, report };
}

class CheckpointSupply implements DeepseekSupply {
  readonly #checkpoint: Checkpoint;
  readonly #taker: TensorTaker;

  constructor(checkpoint: Checkpoint) {
    this.#checkpoint = checkpoint;
    this.#taker = new TensorTaker(checkpoint);
  }

  get taken(): ReadonlySet<string> {
    return this.#taker.taken;
  }

  take(name: string, shape: readonly number[]): TensorRef {
    return this.#taker.take(spelled(this.#checkpoint, name), shape);
  }

  takeTable(published: string, shape: readonly [number, number], below: number): Int32Array {
    const name = spelled(this.#checkpoint, published);
    const tensor = this.#checkpoint.find(name);
    if (tensor === undefined) {
      throw new PlumblineError('tensor_missing', `the checkpoint has no tensor ${quoteName(name)}`);
    }
    const fail = (what: string, rule: string): never => {
      throw new PlumblineError(
        'tensor_mismatch',
        `tensor ${quoteName(name)} ${what}; the configuration requires ${rule}`,
      );
    };
    if (tensor.dtype !== 'I64' || tensor.shape.length !== 2 || tensor.shape.some((size, i) => size !== shape[i])) {
      fail(`is ${tensor.dtype} ${formatShape(tensor.shape)}`, `I64 ${formatShape(shape)}`);
    }
    this.#taker.taken.add(name);
    const table = new Int32Array(shape[0] * shape[1]);
    this.#checkpoint.readBigInt64(name).forEach((entry, i) => {
      if (entry < 0n || entry >= below) {
        fail(`holds ${entry} at [${Math.floor(i / shape[1])}, ${i % shape[1]}]`, `experts from 0 to ${below - 1}`);
      }
      table[i] = Number(entry);
    });
    return table;
  }
}

/** The weight map alone, out of any supply of tensors. */
export function takeDeepseek(t: DeepseekSupply, c: DeepseekConfig): DeepseekWeights {
  const shape = [c.vocabSize, c.hiddenSize];
  const { streams } = c.hyper;
  return {
    embed: t.take('embed.weight', shape),
    head: t.take('head.weight', shape),
    norm: t.take('norm.weight', [c.hiddenSize]),
    headHyper: takeHyper(t, 'hc_head', c, streams, 1),
    layers: c.layerTypes.map((_, layer) => takeLayer(t, `layers.${layer}`, c, layer)),
  };
}

function takeHyper(t: DeepseekSupply, prefix: string, c: DeepseekConfig, outs: number, scales: number): HyperWeights {
  return {
    fn: t.take(`${prefix}_fn`, [outs, c.hyper.streams * c.hiddenSize]),
    base: t.take(`${prefix}_base`, [outs]),
    scale: t.take(`${prefix}_scale`, [scales]),
  };
}

function takeLayer(t: DeepseekSupply, prefix: string, c: DeepseekConfig, layer: number): LayerWeights {
  const weights = (2 + c.hyper.streams) * c.hyper.streams;
  return {
    attnHyper: takeHyper(t, `${prefix}.hc_attn`, c, weights, 3),
    ffnHyper: takeHyper(t, `${prefix}.hc_ffn`, c, weights, 3),
    attnNorm: t.take(`${prefix}.attn_norm.weight`, [c.hiddenSize]),
    ffnNorm: t.take(`${prefix}.ffn_norm.weight`, [c.hiddenSize]),
    attn: takeAttention(t, `${prefix}.attn`, c, layer),
    ffn: takeMoe(t, `${prefix}.ffn`, c, layer),
  };
}

function takeAttention(t: DeepseekSupply, prefix: string, c: DeepseekConfig, layer: number): AttentionWeights {
  const { heads, headDim, queryRank, outputGroups, outputRank } = c.attention;
  const type = c.layerTypes[layer]!;
  const width = heads * headDim;
  return {
    qDown: t.take(`${prefix}.wq_a.weight`, [queryRank, c.hiddenSize]),
    qNorm: t.take(`${prefix}.q_norm.weight`, [queryRank]),
    qUp: t.take(`${prefix}.wq_b.weight`, [width, queryRank]),
    kv: t.take(`${prefix}.wkv.weight`, [headDim, c.hiddenSize]),
    kvNorm: t.take(`${prefix}.kv_norm.weight`, [headDim]),
    sink: t.take(`${prefix}.attn_sink`, [heads]),
    outDown: t.take(`${prefix}.wo_a.weight`, [outputGroups * outputRank, width / outputGroups]),
    outUp: t.take(`${prefix}.wo_b.weight`, [c.hiddenSize, outputGroups * outputRank]),
    compressor:
      type === 'sliding_attention'
        ? undefined
        : takeCompressor(t, `${prefix}.compressor`, c, {
            width: headDim,
            rate: c.rates[type],
            overlap: type === 'compressed_sparse_attention' ? 1 : 0,
          }),
    indexer: type === 'compressed_sparse_attention' ? takeIndexer(t, `${prefix}.indexer`, c) : undefined,
  };
}

function takeCompressor(
  t: DeepseekSupply,
  prefix: string,
  c: DeepseekConfig,
  { width, rate, overlap }: { readonly width: number; readonly rate: number; readonly overlap: 0 | 1 },
): CompressorWeights {
  const channels = (1 + overlap) * width;
  return {
    values: t.take(`${prefix}.wkv.weight`, [channels, c.hiddenSize]),
    gates: t.take(`${prefix}.wgate.weight`, [channels, c.hiddenSize]),
    ape: t.take(`${prefix}.ape`, [rate, channels]),
    norm: t.take(`${prefix}.norm.weight`, [width]),
  };
}

function takeIndexer(t: DeepseekSupply, prefix: string, c: DeepseekConfig): IndexerWeights {
  const { heads, headDim } = c.indexer!;
  const rate = c.rates.compressed_sparse_attention;
  return {
    q: t.take(`${prefix}.wq_b.weight`, [heads * headDim, c.attention.queryRank]),
    weights: t.take(`${prefix}.weights_proj.weight`, [heads, c.hiddenSize]),
    compressor: takeCompressor(t, `${prefix}.compressor`, c, { width: headDim, rate, overlap: 1 }),
  };
}

function takeMoe(t: DeepseekSupply, prefix: string, c: DeepseekConfig, layer: number): MoeWeights {
  const { experts, expertsPerToken } = c.moe;
  const hashed = c.mlpTypes[layer] === 'hash_moe';
  const { vocabSize } = c;
  return {
    gate: t.take(`${prefix}.gate.weight`, [experts, c.hiddenSize]),
    bias: hashed ? undefined : t.take(`${prefix}.gate.bias`, [experts]),
    expertsOfToken: hashed ? t.takeTable(`${prefix}.gate.tid2eid`, [vocabSize, expertsPerToken], experts) : undefined,
    experts: Array.from({ length: experts }, (_, e) => {
      const { gateProj, upProj, downProj } = takeExpert(t, `${prefix}.experts.${e}`, c);
      return { gateProj: whole(gateProj), upProj: whole(upProj), downProj: whole(downProj) };
    }),
    shared: takeExpert(t, `${prefix}.shared_experts`, c),
  };
}

function takeExpert(t: DeepseekSupply, prefix: string, c: DeepseekConfig): ExpertWeights {
  const { expertWidth } = c.moe;
  return {
    gateProj: t.take(`${prefix}.w1.weight`, [expertWidth, c.hiddenSize]),
    upProj: t.take(`${prefix}.w3.weight`, [expertWidth, c.hiddenSize]),
    downProj: t.take(`${prefix}.w2.weight`, [c.hiddenSize, expertWidth]),
  };
}

function whole(tensor: TensorRef): TensorSlice {
  const [rows = 0, columns = 0] = tensor.shape;
  return { tensor, byteOffset: 0, byteLength: tensor.byteLength, shape: [rows, columns] };
}
