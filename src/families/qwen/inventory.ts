/**
 * Takes the tensors that a configuration requires out of a checkpoint, checks each, and hands over the weight map with a
 * report of what was left.
 *
 * Invariants: every reference in the map has been checked for presence, float dtype and exact shape, so binding cannot
 * meet a surprise; stored hash constants equal their formulas; whatever is not taken is in the report. Of the data only
 * the hash constants are read.
 */
import { PlumblineError } from '../../errors.js';
import type { Checkpoint } from '../../weights/checkpoint.js';
import { quoteName } from '../../weights/strict-json.js';
import type { TensorRef } from '../../weights/tensor.js';
import { TensorTaker, type TensorSupply } from '../../weights/tensor-taker.js';
import { findRoot, type TextRoot } from '../checkpoint-root.js';
import { reportLoad, type LoadReport } from '../load-report.js';
import type { AttentionConfig, MoeConfig, PleConfig, Qwen35Config, Qwen4Config, QwenConfig } from './config-types.js';
import { ngramTableNames, UNSERVED_PARTS, unservedPart } from './names.js';
import { MAX_TABLE_ROWS, ngramConstants, type NgramConstants } from './ngram-constants.js';
import type {
  AttentionWeights,
  ExpertLayout,
  ExpertWeights,
  GatedResidualWeights,
  LinearAttentionWeights,
  LinearWeights,
  MoeWeights,
  MtpWeights,
  NgramTableWeights,
  PleWeights,
  Qwen35Weights,
  Qwen4LayerWeights,
  Qwen4Weights,
  QwenWeights,
  ResidualReadWeights,
  SwigluWeights,
  TokenMixerWeights,
} from './weight-map.js';

export interface QwenInventory {
  readonly weights: QwenWeights;
  readonly report: LoadReport;
}

/**
 * @throws tensor_missing, tensor_mismatch (naming the tensor, what it is and what it must be), config_unsupported for a
 * checkpoint of another layout, config_invalid when the configured n-gram table cannot be addressed
 */
export function inventoryQwen(checkpoint: Checkpoint, config: QwenConfig, draftHead = false): QwenInventory {
  const tensors = new TensorTaker(checkpoint);
  const root = findRoot(checkpoint);
  const weights = takeQwen(tensors, root, config, draftHead);
  const report = reportLoad(checkpoint, {
    taken: tensors.taken,
    tables: tableNames(weights),
    parts: UNSERVED_PARTS,
    partOf: unservedPart,
  });
  return { weights, report };
}

/** Shards of n-gram tables. */
function tableNames(weights: QwenWeights): ReadonlySet<string> {
  const layers = weights.family === 'qwen4_exp' ? weights.layers : [];
  return new Set(layers.flatMap(({ ple }) => (ple?.table.shards ?? []).map(({ name }) => name)));
}

/** The weight map alone, out of any supply of tensors. */
export function takeQwen(t: TensorSupply, root: TextRoot, config: QwenConfig, draftHead = false): QwenWeights {
  return config.family === 'qwen4_exp' ? takeQwen4(t, root, config, draftHead) : takeQwen35(t, root, config);
}

function takeEnds(
  t: TensorSupply,
  root: TextRoot,
  c: QwenConfig,
): Pick<QwenWeights, 'root' | 'embedTokens' | 'lmHead'> {
  const shape = [c.vocabSize, c.hiddenSize];
  const embedTokens = t.take(`${root}.embed_tokens.weight`, shape);
  const useEmbedding = c.tieWordEmbeddings && !t.has('lm_head.weight');
  return { root, embedTokens, lmHead: useEmbedding ? embedTokens : t.take('lm_head.weight', shape) };
}

function takeQwen4(t: TensorSupply, root: TextRoot, c: Qwen4Config, draftHead: boolean): Qwen4Weights {
  return {
    family: 'qwen4_exp',
    ...takeEnds(t, root, c),
    layers: c.layerTypes.map((_, n) => takeQwen4Layer(t, `${root}.layers.${n}`, c, n)),
    hyperConnectionMixer: takeResidualRead(t, `${root}.hyper_connection_mixer`, c),
    mtp: draftHead && t.has('mtp.fc_hidden.weight') ? takeMtp(t, c) : undefined,
  };
}

function takeMtp(t: TensorSupply, c: Qwen4Config): MtpWeights {
  const H = c.hiddenSize;
  const prefix = 'mtp.layers.0';
  if (c.mtpLayerCount !== 1 || c.indexer === undefined) {
    throw new PlumblineError(
      'config_unsupported',
      `config.json: mtp_num_hidden_layers is ${c.mtpLayerCount}; a draft head of one sparse attention layer is supported`,
    );
  }
  return {
    preFcNormHidden: t.take('mtp.pre_fc_norm_hidden.weight', [c.hyperConnections.streams * H]),
    preFcNormEmbedding: t.take('mtp.pre_fc_norm_embedding.weight', [H]),
    fcHidden: t.take('mtp.fc_hidden.weight', [H, H]),
    fcEmbedding: t.take('mtp.fc_embedding.weight', [H, H]),
    layer: {
      mixer: takeAttention(t, `${prefix}.self_attn`, c),
      attnHyperConnection: takeGatedResidual(t, `${prefix}.attn_hyper_connection`, c),
      mlpHyperConnection: takeGatedResidual(t, `${prefix}.mlp_hyper_connection`, c),
      mlp: takeMoe(t, `${prefix}.mlp`, H, c.moe),
    },
    hyperConnectionMixer: takeResidualRead(t, 'mtp.hyper_connection_mixer', c),
  };
}

function takeQwen4Layer(t: TensorSupply, prefix: string, c: Qwen4Config, n: number): Qwen4LayerWeights {
  const pleIndex = c.ple?.layers.indexOf(n) ?? -1;
  return {
    mixer: takeMixer(t, prefix, c, n),
    attnHyperConnection: takeGatedResidual(t, `${prefix}.attn_hyper_connection`, c),
    mlpHyperConnection: takeGatedResidual(t, `${prefix}.mlp_hyper_connection`, c),
    mlp: takeMoe(t, `${prefix}.mlp`, c.hiddenSize, c.moe),
    ple: c.ple !== undefined && pleIndex >= 0 ? takePle(t, `${prefix}.ple`, c, c.ple, pleIndex) : undefined,
  };
}

function takeQwen35(t: TensorSupply, root: TextRoot, c: Qwen35Config): Qwen35Weights {
  const H = c.hiddenSize;
  return {
    family: 'qwen3_5',
    ...takeEnds(t, root, c),
    layers: c.layerTypes.map((_, n) => {
      const prefix = `${root}.layers.${n}`;
      return {
        mixer: takeMixer(t, prefix, c, n),
        inputLayernorm: t.take(`${prefix}.input_layernorm.weight`, [H]),
        postAttentionLayernorm: t.take(`${prefix}.post_attention_layernorm.weight`, [H]),
        mlp: takeSwiglu(t, `${prefix}.mlp`, H, c.mlpWidth),
      };
    }),
    norm: t.take(`${root}.norm.weight`, [H]),
  };
}

function takeMixer(t: TensorSupply, prefix: string, c: QwenConfig, n: number): TokenMixerWeights {
  return c.layerTypes[n] === 'linear_attention'
    ? takeLinearAttention(t, `${prefix}.linear_attn`, c)
    : takeAttention(t, `${prefix}.self_attn`, c);
}

function takeLinearAttention(t: TensorSupply, prefix: string, c: QwenConfig): LinearAttentionWeights {
  const H = c.hiddenSize;
  const { valueHeads: Nv, valueHeadDim: Dv, convKernel: K, convChannels } = c.linearAttention;
  return {
    kind: 'linear_attention',
    inProjQkv: t.take(`${prefix}.in_proj_qkv.weight`, [convChannels, H]),
    inProjZ: t.take(`${prefix}.in_proj_z.weight`, [Nv * Dv, H]),
    inProjB: t.take(`${prefix}.in_proj_b.weight`, [Nv, H]),
    inProjA: t.take(`${prefix}.in_proj_a.weight`, [Nv, H]),
    conv1d: t.take(`${prefix}.conv1d.weight`, [convChannels, 1, K]),
    aLog: t.take(`${prefix}.A_log`, [Nv]),
    dtBias: t.take(`${prefix}.dt_bias`, [Nv]),
    norm: t.take(`${prefix}.norm.weight`, [Dv]),
    outProj: t.take(`${prefix}.out_proj.weight`, [H, Nv * Dv]),
  };
}

function takeAttention(t: TensorSupply, prefix: string, c: QwenConfig): AttentionWeights {
  const H = c.hiddenSize;
  const { heads: Hq, kvHeads: Hkv, headDim: D } = c.attention;
  return {
    kind: 'attention',
    qProj: takeLinear(t, `${prefix}.q_proj`, 2 * Hq * D, H, c.attention),
    kProj: takeLinear(t, `${prefix}.k_proj`, Hkv * D, H, c.attention),
    vProj: takeLinear(t, `${prefix}.v_proj`, Hkv * D, H, c.attention),
    oProj: takeLinear(t, `${prefix}.o_proj`, H, Hq * D, c.attention),
    qNorm: t.take(`${prefix}.q_norm.weight`, [D]),
    kNorm: t.take(`${prefix}.k_norm.weight`, [D]),
    indexer:
      c.family === 'qwen4_exp' && c.indexer !== undefined
        ? takeIndexer(t, `${prefix}.indexer`, H, c.indexer)
        : undefined,
  };
}

function takeIndexer(
  t: TensorSupply,
  prefix: string,
  H: number,
  { heads: Hi, headDim: Di }: { heads: number; headDim: number },
) {
  return {
    indexQkProj: t.take(`${prefix}.index_qk_proj.weight`, [(Hi + 1) * Di, H]),
    qLayernorm: t.take(`${prefix}.q_layernorm.weight`, [Di]),
    kLayernorm: t.take(`${prefix}.k_layernorm.weight`, [Di]),
  };
}

function takeLinear(
  t: TensorSupply,
  prefix: string,
  outs: number,
  ins: number,
  { bias }: AttentionConfig,
): LinearWeights {
  return {
    weight: t.take(`${prefix}.weight`, [outs, ins]),
    bias: bias ? t.take(`${prefix}.bias`, [outs]) : undefined,
  };
}

function takeResidualRead(t: TensorSupply, prefix: string, c: Qwen4Config): ResidualReadWeights {
  const { streams: C, rank: r } = c.hyperConnections;
  const wide = C * c.hiddenSize;
  return {
    hcNorm: t.take(`${prefix}.hc_norm.weight`, [wide]),
    inputMixDown: t.take(`${prefix}.input_mix_weight_down.weight`, [r, wide]),
    inputMixUp: t.take(`${prefix}.input_mix_weight_up.weight`, [wide, r]),
  };
}

function takeGatedResidual(t: TensorSupply, prefix: string, c: Qwen4Config): GatedResidualWeights {
  const { streams: C } = c.hyperConnections;
  return {
    ...takeResidualRead(t, prefix, c),
    blockInject: t.take(`${prefix}.block_inject_weight.weight`, [C, C * c.hiddenSize]),
  };
}

function takeSwiglu(t: TensorSupply, prefix: string, H: number, width: number): SwigluWeights {
  return {
    gateProj: t.take(`${prefix}.gate_proj.weight`, [width, H]),
    upProj: t.take(`${prefix}.up_proj.weight`, [width, H]),
    downProj: t.take(`${prefix}.down_proj.weight`, [H, width]),
  };
}

function takeMoe(t: TensorSupply, prefix: string, H: number, c: MoeConfig): MoeWeights {
  const experts = `${prefix}.experts`;
  const layout: ExpertLayout = t.has(`${experts}.gate_up_proj`) ? 'stacked' : 'per-expert';
  if (layout === 'stacked' && t.has(`${experts}.0.gate_proj.weight`)) {
    throw new PlumblineError('tensor_mismatch', `the checkpoint has ${quoteName(experts)} both stacked and one by one`);
  }
  return {
    gate: t.take(`${prefix}.gate.weight`, [c.experts, H]),
    sharedExpertGate: t.take(`${prefix}.shared_expert_gate.weight`, [1, H]),
    sharedExpert: takeSwiglu(t, `${prefix}.shared_expert`, H, c.sharedExpertWidth),
    layout,
    experts: layout === 'stacked' ? takeStackedExperts(t, experts, H, c) : takeSingleExperts(t, experts, H, c),
  };
}

function takeSingleExperts(
  t: TensorSupply,
  prefix: string,
  H: number,
  { experts, expertWidth }: MoeConfig,
): ExpertWeights[] {
  const whole = (tensor: TensorRef, rows: number, columns: number) => ({
    tensor,
    byteOffset: 0,
    byteLength: tensor.byteLength,
    shape: [rows, columns] as const,
  });
  return Array.from({ length: experts }, (_, e) => {
    const { gateProj, upProj, downProj } = takeSwiglu(t, `${prefix}.${e}`, H, expertWidth);
    return {
      gateProj: whole(gateProj, expertWidth, H),
      upProj: whole(upProj, expertWidth, H),
      downProj: whole(downProj, H, expertWidth),
    };
  });
}

/** Rows 0 … I − 1 of an expert's gate_up_proj are its gate, rows I … 2·I − 1 its up projection. */
function takeStackedExperts(
  t: TensorSupply,
  prefix: string,
  H: number,
  { experts, expertWidth }: MoeConfig,
): ExpertWeights[] {
  const gateUp = t.take(`${prefix}.gate_up_proj`, [experts, 2 * expertWidth, H]);
  const down = t.take(`${prefix}.down_proj`, [experts, H, expertWidth]);
  const half = gateUp.byteLength / experts / 2;
  const whole = down.byteLength / experts;
  return Array.from({ length: experts }, (_, e) => ({
    gateProj: { tensor: gateUp, byteOffset: 2 * e * half, byteLength: half, shape: [expertWidth, H] as const },
    upProj: { tensor: gateUp, byteOffset: (2 * e + 1) * half, byteLength: half, shape: [expertWidth, H] as const },
    downProj: { tensor: down, byteOffset: e * whole, byteLength: whole, shape: [H, expertWidth] as const },
  }));
}

function takePle(t: TensorSupply, prefix: string, c: Qwen4Config, ple: PleConfig, pleIndex: number): PleWeights {
  const H = c.hiddenSize;
  const wide = c.hyperConnections.streams * H;
  const embedding = `${prefix}.ple_embedding`;
  const names = ngramTableNames(t, `${embedding}.ngram_embedding`);
  const constants = ngramConstants(ple, pleIndex, c.vocabSize);
  if (constants.rows > MAX_TABLE_ROWS) {
    throw new PlumblineError(
      'config_invalid',
      `config.json: the n-gram table of PLE layer ${pleIndex} would have ${constants.rows} rows; at most ${MAX_TABLE_ROWS} can be addressed`,
    );
  }
  t.compareConstants(`${embedding}.layer_multipliers`, constants.multipliers);
  t.compareConstants(`${embedding}.ngram_heads_vocab_sizes`, constants.sizes);
  t.compareConstants(`${embedding}.ngram_heads_offsets`, constants.offsets);
  return {
    keyProj: t.take(`${prefix}.key_proj.weight`, [wide, ple.embedDim]),
    valueProj: t.take(`${prefix}.value_proj.weight`, [H, ple.embedDim]),
    normKey: t.take(`${prefix}.norm_key.weight`, [wide]),
    normQuery: t.take(`${prefix}.norm_query.weight`, [wide]),
    normConv: t.take(`${prefix}.norm_conv.weight`, [wide]),
    conv1d: t.take(`${prefix}.conv1d.weight`, [wide, 1, ple.convKernel]),
    constants,
    table: takeTable(t, names, ple.rowWidth, constants),
  };
}

function takeTable(
  t: TensorSupply,
  names: readonly string[],
  width: number,
  constants: NgramConstants,
): NgramTableWeights {
  const shards = names.map((name) => t.takeRows(name, width));
  const rows = shards.reduce((sum, shard) => sum + (shard.shape[0] as number), 0);
  if (rows !== constants.rows) {
    throw new PlumblineError(
      'tensor_mismatch',
      `the n-gram table ${quoteName(names[0] as string)} and following have ${rows} rows; the configuration requires ${constants.rows}`,
    );
  }
  return { shards, rows, width };
}
