/**
 * Writes small random Qwen checkpoints in the published layout: either family, either expert layout, either root, one
 * file or shards. The same options and seed give the same bytes. Names and shapes are spelled out here once more, from
 * the published layout, so that a test on such a folder also judges the inventory.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseQwenConfig } from '../../src/families/qwen/config.js';
import type { Qwen35Config, Qwen4Config, QwenConfig } from '../../src/families/qwen/config-types.js';
import { ngramConstants } from '../../src/families/qwen/ngram-constants.js';
import { JsonKeys } from '../../src/weights/json-file.js';
import type { JsonObject } from '../../src/weights/strict-json.js';
import { byteTokenizerConfig, byteTokenizerJson } from './byte-tokenizer.js';
import { encodeSafetensors, floatBytes, int64Bytes, type TensorData } from './write-safetensors.js';

type Json = Record<string, unknown>;

const COMMON: Json = {
  vocab_size: 272,
  hidden_size: 16,
  num_hidden_layers: 4,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 8,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: false,
  rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.5, mrope_section: [1, 1, 0] },
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 4,
  linear_value_head_dim: 4,
  linear_num_key_heads: 1,
  linear_num_value_heads: 2,
  eos_token_id: 1,
};

/** A text config of four layers with every part of the architecture; fits the byte tokenizer. */
export function tinyQwen4Config(overrides: Json = {}): Json {
  return {
    ...COMMON,
    model_type: 'qwen4_exp_text',
    hc_count: 2,
    hc_lowrank: 4,
    num_experts: 4,
    num_experts_per_tok: 2,
    moe_intermediate_size: 8,
    shared_expert_intermediate_size: 8,
    indexer_n_heads: 2,
    indexer_kv_heads: 1,
    indexer_head_dim: 8,
    indexer_budget: 8,
    indexer_compress_ratio: 4,
    output_gate_type: 'sigmoid',
    ple_layer_ids: [1],
    ple_embed_dim: 16,
    ple_conv_kernel_size: 4,
    ngram_size: 3,
    heads_per_ngram: 2,
    ngram_vocab_size_base: 31,
    make_ngram_vocab_size_divisible_by: 8,
    seed: 1234,
    ...overrides,
  };
}

export function tinyQwen35Config(overrides: Json = {}): Json {
  return { ...COMMON, model_type: 'qwen3_5_text', intermediate_size: 24, ...overrides };
}

export interface CheckpointOptions {
  /** Text config; `tinyQwen4Config()` unless given. */
  readonly config?: Json;
  readonly seed?: number;
  readonly dtype?: 'BF16' | 'F16' | 'F32';
  readonly root?: 'model' | 'model.language_model';
  readonly experts?: 'per-expert' | 'stacked';
  /** Put the text config into a wrapper config. */
  readonly wrapper?: boolean;
  /** Files to spread the tensors over, with an index; 1: a single model.safetensors. */
  readonly files?: number;
  /** Row counts of the n-gram shards (their sum is made right by the last); none: one whole table. */
  readonly tableShards?: readonly number[];
  readonly storeConstants?: boolean;
  /** Tensors beyond the model: a few `mtp.*` and `model.visual.*` ones. */
  readonly extras?: boolean;
  readonly byteTokenizer?: boolean;
  readonly generation?: Json;
}

/** Write a checkpoint into `dir` (made when absent). Returns the tensors that were written, in file order. */
export function writeCheckpoint(dir: string, options: CheckpointOptions = {}): readonly TensorData[] {
  const config = options.config ?? tinyQwen4Config();
  mkdirSync(dir, { recursive: true });
  writeJson(dir, 'config.json', options.wrapper === true ? wrap(config) : config);
  writeJson(dir, 'generation_config.json', options.generation ?? { eos_token_id: 1 });
  if (options.byteTokenizer === true) {
    writeJson(dir, 'tokenizer.json', byteTokenizerJson());
    writeJson(dir, 'tokenizer_config.json', byteTokenizerConfig());
  }
  const tensors = checkpointTensors(config, options);
  const files = options.files ?? 1;
  if (files === 1) writeFileSync(join(dir, 'model.safetensors'), encodeSafetensors(tensors, { format: 'pt' }));
  else writeShards(dir, tensors, files);
  return tensors;
}

/** Tensors of a text config, with random values. */
export function checkpointTensors(config: Json, options: CheckpointOptions = {}): TensorData[] {
  const parsed = parseQwenConfig(new JsonKeys(config as JsonObject, 'config.json', ''));
  return new TensorWriter(parsed, options).tensors();
}

export function shardName(index: number, count: number): string {
  const five = (n: number): string => String(n).padStart(5, '0');
  return `model-${five(index + 1)}-of-${five(count)}.safetensors`;
}

export function writeJson(dir: string, file: string, value: unknown): void {
  writeFileSync(join(dir, file), `${JSON.stringify(value, null, 2)}\n`);
}

function wrap(config: Json): Json {
  const { model_type, ...rest } = config;
  const modelType = String(model_type);
  return { model_type: modelType.replace(/_text$/, ''), text_config: { model_type: modelType, ...rest } };
}

function writeShards(dir: string, tensors: readonly TensorData[], count: number): void {
  const weightMap: Record<string, string> = {};
  for (let shard = 0; shard < count; shard++) {
    const part = tensors.filter((_, i) => i % count === shard);
    for (const { name } of part) weightMap[name] = shardName(shard, count);
    writeFileSync(join(dir, shardName(shard, count)), encodeSafetensors(part, { format: 'pt' }));
  }
  writeJson(dir, 'model.safetensors.index.json', { metadata: {}, weight_map: weightMap });
}

/** Uniform numbers in [0, 1): a Weyl sequence through a 32-bit mixer. */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  };
}

class TensorWriter {
  private readonly out: TensorData[] = [];
  private readonly random: () => number;
  private readonly root: string;

  constructor(
    private readonly config: QwenConfig,
    private readonly options: CheckpointOptions,
  ) {
    this.random = randomNumbers(options.seed ?? 1);
    this.root = options.root ?? 'model';
  }

  tensors(): TensorData[] {
    const { config: c } = this;
    this.matrix(`${this.root}.embed_tokens.weight`, [c.vocabSize, c.hiddenSize], 0.7);
    if (!c.tieWordEmbeddings) this.matrix('lm_head.weight', [c.vocabSize, c.hiddenSize]);
    c.layerTypes.forEach((_, n) => {
      this.mixer(`${this.root}.layers.${n}`, n);
      if (c.family === 'qwen4_exp') this.qwen4Layer(`${this.root}.layers.${n}`, c, n);
      else this.qwen35Layer(`${this.root}.layers.${n}`, c);
    });
    if (c.family === 'qwen4_exp') this.residual(`${this.root}.hyper_connection_mixer`, c);
    else this.vector(`${this.root}.norm.weight`, c.hiddenSize, 0);
    if (this.options.extras === true) {
      this.matrix('mtp.fc_hidden.weight', [c.hiddenSize, c.hiddenSize]);
      this.matrix('model.visual.patch_embed.proj.weight', [8, 3, 2, 2]);
    }
    return this.out;
  }

  private mixer(prefix: string, n: number): void {
    const { config: c } = this;
    const H = c.hiddenSize;
    if (c.layerTypes[n] === 'linear_attention') {
      const { valueHeads: Nv, valueHeadDim: Dv, convKernel: K, convChannels } = c.linearAttention;
      const at = `${prefix}.linear_attn`;
      this.matrix(`${at}.in_proj_qkv.weight`, [convChannels, H]);
      this.matrix(`${at}.in_proj_z.weight`, [Nv * Dv, H]);
      this.matrix(`${at}.in_proj_b.weight`, [Nv, H]);
      this.matrix(`${at}.in_proj_a.weight`, [Nv, H]);
      this.matrix(`${at}.conv1d.weight`, [convChannels, 1, K]);
      this.add(`${at}.A_log`, [Nv], () => Math.log(this.random() * 8 + 0.25));
      this.vector(`${at}.dt_bias`, Nv, 0, 0.5);
      this.vector(`${at}.norm.weight`, Dv, 1);
      this.matrix(`${at}.out_proj.weight`, [H, Nv * Dv], 0.5);
      return;
    }
    const { heads: Hq, kvHeads: Hkv, headDim: D, bias } = c.attention;
    const at = `${prefix}.self_attn`;
    const linear = (name: string, outs: number, ins: number, scale: number): void => {
      this.matrix(`${at}.${name}.weight`, [outs, ins], scale);
      if (bias) this.vector(`${at}.${name}.bias`, outs, 0);
    };
    linear('q_proj', 2 * Hq * D, H, 1);
    linear('k_proj', Hkv * D, H, 1);
    linear('v_proj', Hkv * D, H, 1);
    linear('o_proj', H, Hq * D, 0.5);
    this.vector(`${at}.q_norm.weight`, D, 0);
    this.vector(`${at}.k_norm.weight`, D, 0);
    if (c.family !== 'qwen4_exp' || c.indexer === undefined) return;
    const { heads: Hi, headDim: Di } = c.indexer;
    this.matrix(`${at}.indexer.index_qk_proj.weight`, [(Hi + 1) * Di, H]);
    this.vector(`${at}.indexer.q_layernorm.weight`, Di, 0);
    this.vector(`${at}.indexer.k_layernorm.weight`, Di, 0);
  }

  private qwen35Layer(prefix: string, c: Qwen35Config): void {
    this.vector(`${prefix}.input_layernorm.weight`, c.hiddenSize, 0);
    this.vector(`${prefix}.post_attention_layernorm.weight`, c.hiddenSize, 0);
    this.swiglu(`${prefix}.mlp`, c.hiddenSize, c.mlpWidth);
  }

  private qwen4Layer(prefix: string, c: Qwen4Config, n: number): void {
    const { streams: C } = c.hyperConnections;
    for (const at of [`${prefix}.attn_hyper_connection`, `${prefix}.mlp_hyper_connection`]) {
      this.residual(at, c);
      this.matrix(`${at}.block_inject_weight.weight`, [C, C * c.hiddenSize]);
    }
    this.moe(`${prefix}.mlp`, c);
    const pleIndex = c.ple?.layers.indexOf(n) ?? -1;
    if (pleIndex >= 0) this.ple(`${prefix}.ple`, c, pleIndex);
  }

  private residual(at: string, c: Qwen4Config): void {
    const { streams: C, rank: r } = c.hyperConnections;
    this.vector(`${at}.hc_norm.weight`, C * c.hiddenSize, 0);
    this.matrix(`${at}.input_mix_weight_down.weight`, [r, C * c.hiddenSize]);
    this.matrix(`${at}.input_mix_weight_up.weight`, [C * c.hiddenSize, r]);
  }

  private moe(at: string, { hiddenSize: H, moe }: Qwen4Config): void {
    const { experts: E, expertWidth: I, sharedExpertWidth: Is } = moe;
    this.matrix(`${at}.gate.weight`, [E, H]);
    this.matrix(`${at}.shared_expert_gate.weight`, [1, H]);
    this.swiglu(`${at}.shared_expert`, H, Is);
    // Both layouts hold the same numbers: the stack is made of the single experts.
    const from = this.out.length;
    for (let e = 0; e < E; e++) this.swiglu(`${at}.experts.${e}`, H, I);
    if (this.options.experts !== 'stacked') return;
    const single = this.out.splice(from);
    const join = (name: string, shape: number[], parts: readonly TensorData[]): void => {
      this.out.push({ name, dtype: this.dtype, shape, bytes: Buffer.concat(parts.map(({ bytes }) => bytes)) });
    };
    join(
      `${at}.experts.gate_up_proj`,
      [E, 2 * I, H],
      single.filter((_, i) => i % 3 !== 2),
    );
    join(
      `${at}.experts.down_proj`,
      [E, H, I],
      single.filter((_, i) => i % 3 === 2),
    );
  }

  private swiglu(at: string, H: number, width: number): void {
    this.matrix(`${at}.gate_proj.weight`, [width, H]);
    this.matrix(`${at}.up_proj.weight`, [width, H]);
    this.matrix(`${at}.down_proj.weight`, [H, width], 0.5);
  }

  private ple(at: string, c: Qwen4Config, pleIndex: number): void {
    const ple = c.ple;
    if (ple === undefined) return;
    const wide = c.hyperConnections.streams * c.hiddenSize;
    const constants = ngramConstants(ple, pleIndex, c.vocabSize);
    this.matrix(`${at}.key_proj.weight`, [wide, ple.embedDim]);
    this.matrix(`${at}.value_proj.weight`, [c.hiddenSize, ple.embedDim]);
    this.matrix(`${at}.conv1d.weight`, [wide, 1, ple.convKernel]);
    for (const norm of ['norm_key', 'norm_query', 'norm_conv']) this.vector(`${at}.${norm}.weight`, wide, 0);
    if (this.options.storeConstants !== false) {
      this.int64(`${at}.ple_embedding.layer_multipliers`, constants.multipliers);
      this.int64(`${at}.ple_embedding.ngram_heads_vocab_sizes`, constants.sizes);
      this.int64(`${at}.ple_embedding.ngram_heads_offsets`, constants.offsets);
    }
    const table = `${at}.ple_embedding.ngram_embedding`;
    const { tableShards } = this.options;
    if (tableShards === undefined) {
      this.matrix(`${table}.weight`, [constants.rows, ple.rowWidth], 0.7);
      return;
    }
    let left = constants.rows;
    tableShards.forEach((rows, shard) => {
      const taken = shard === tableShards.length - 1 ? left : rows;
      this.matrix(`${table}.shard_${shard}.weight`, [taken, ple.rowWidth], 0.7);
      left -= taken;
    });
  }

  private get dtype(): 'BF16' | 'F16' | 'F32' {
    return this.options.dtype ?? 'BF16';
  }

  /** Values of about unit size after the map: scale / sqrt(last axis); embeddings give their own size. */
  private matrix(name: string, shape: readonly number[], scale = 1): void {
    const fan = name.includes('embed') ? 1 : (shape[shape.length - 1] ?? 1);
    this.add(name, shape, () => (this.normal() * scale) / Math.sqrt(fan));
  }

  private vector(name: string, length: number, centre: number, spread = 0.1): void {
    this.add(name, [length], () => centre + this.normal() * spread);
  }

  private add(name: string, shape: readonly number[], value: () => number): void {
    const count = shape.reduce((product, size) => product * size, 1);
    this.out.push({
      name,
      dtype: this.dtype,
      shape,
      bytes: floatBytes(this.dtype, Float32Array.from({ length: count }, value)),
    });
  }

  private int64(name: string, values: readonly (bigint | number)[]): void {
    this.out.push({ name, dtype: 'I64', shape: [values.length], bytes: int64Bytes(values) });
  }

  /** Close enough to a normal distribution, and the same on every machine: a sum of uniform numbers of variance 1. */
  private normal(): number {
    return Math.sqrt(3) * (this.random() + this.random() + this.random() + this.random() - 2);
  }
}
