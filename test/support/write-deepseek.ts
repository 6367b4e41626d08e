/**
 * Writes small random DeepSeek V4 checkpoints, under either spelling of their names. The same options give the same bytes.
 * Names and shapes are spelled out here once more, from the published layout, so that a test on such a folder also judges
 * the inventory.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { seededRandom } from './op-case-writer.js';
import { writeJson } from './write-checkpoint.js';
import { encodeSafetensors, floatBytes, int64Bytes, type TensorData } from './write-safetensors.js';

type Json = Record<string, unknown>;

/** Four layers: a sliding one, two that choose, one that sees all; the first two choose experts by table. */
export function tinyDeepseekConfig(overrides: Json = {}): Json {
  return {
    model_type: 'deepseek_v4',
    vocab_size: 272,
    hidden_size: 16,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 8,
    q_lora_rank: 8,
    qk_rope_head_dim: 4,
    o_groups: 2,
    o_lora_rank: 4,
    sliding_window: 8,
    compress_ratios: [0, 4, 128, 4, 0],
    compress_rate_hca: 16,
    index_n_heads: 2,
    index_head_dim: 8,
    index_topk: 2,
    n_routed_experts: 4,
    num_experts_per_tok: 2,
    moe_intermediate_size: 8,
    n_shared_experts: 1,
    num_hash_layers: 2,
    hc_mult: 2,
    max_position_embeddings: 512,
    eos_token_id: 1,
    ...overrides,
  };
}

export interface DeepseekCheckpointOptions {
  readonly config?: Json;
  /** Published names, or those that the reference implementation writes. */
  readonly spelling?: 'published' | 'rewritten';
  readonly dtype?: 'BF16' | 'F16' | 'F32';
  /** Tensors of an extra prediction layer. */
  readonly extras?: boolean;
}

/** Write a checkpoint into `dir` (made when absent). Returns the tensors that were written, in file order. */
export function writeDeepseekCheckpoint(dir: string, options: DeepseekCheckpointOptions = {}): readonly TensorData[] {
  const config = options.config ?? tinyDeepseekConfig();
  mkdirSync(dir, { recursive: true });
  writeJson(dir, 'config.json', config);
  writeJson(dir, 'generation_config.json', { eos_token_id: 1 });
  const tensors = deepseekTensors(options);
  writeFileSync(join(dir, 'model.safetensors'), encodeSafetensors(tensors, { format: 'pt' }));
  return tensors;
}

/** The tensors of the tiny configuration's sizes; its layer kinds are fixed. */
export function deepseekTensors(options: DeepseekCheckpointOptions = {}): TensorData[] {
  const [D, H, V, E, k, M] = [16, 2, 272, 4, 2, 8];
  const [heads, hd, rank, G, R, nI, dI] = [4, 8, 8, 2, 4, 2, 8];
  const random = seededRandom('deepseek checkpoint');
  const dtype = options.dtype ?? 'BF16';
  const out: TensorData[] = [];
  const name = (published: string): string => {
    if (options.spelling !== 'rewritten' || published === 'head.weight' || published.startsWith('mtp.'))
      return published;
    if (published === 'embed.weight') return 'model.embed_tokens.weight';
    if (published.startsWith('hc_head_')) return `model.hc_head.hc_${published.slice('hc_head_'.length)}`;
    return `model.${published.replace('attn.kv_norm', 'attn.norm')}`;
  };
  const add = (published: string, shape: number[], scale: number, centre = 0, as: typeof dtype = dtype): void => {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Float32Array.from({ length: count }, () => centre + (random() + random() + random() - 1.5) * scale);
    out.push({ name: name(published), dtype: as, shape, bytes: floatBytes(as, values) });
  };
  const matrix = (published: string, outs: number, ins: number): void =>
    add(`${published}.weight`, [outs, ins], 2 / Math.sqrt(ins));
  const gain = (published: string, width: number): void => add(`${published}.weight`, [width], 0.2, 1, 'F32');
  const hyper = (prefix: string, outs: number, scales: number): void => {
    add(`${prefix}_fn`, [outs, H * D], 0.4, 0, 'F32');
    add(`${prefix}_base`, [outs], 1, 0, 'F32');
    add(`${prefix}_scale`, [scales], 0.2, 1, 'F32');
  };
  const compressor = (prefix: string, rate: number, channels: number, width: number): void => {
    matrix(`${prefix}.wkv`, channels, D);
    matrix(`${prefix}.wgate`, channels, D);
    add(`${prefix}.ape`, [rate, channels], 1, 0, 'F32');
    gain(`${prefix}.norm`, width);
  };
  const expert = (prefix: string): void => {
    matrix(`${prefix}.w1`, M, D);
    matrix(`${prefix}.w3`, M, D);
    matrix(`${prefix}.w2`, D, M);
  };
  add('embed.weight', [V, D], 1);
  matrix('head', V, D);
  gain('norm', D);
  hyper('hc_head', H, 1);
  ['sliding', 'chosen', 'all', 'chosen'].forEach((kind, n) => {
    const at = `layers.${n}`;
    hyper(`${at}.hc_attn`, (2 + H) * H, 3);
    hyper(`${at}.hc_ffn`, (2 + H) * H, 3);
    gain(`${at}.attn_norm`, D);
    gain(`${at}.ffn_norm`, D);
    matrix(`${at}.attn.wq_a`, rank, D);
    gain(`${at}.attn.q_norm`, rank);
    matrix(`${at}.attn.wq_b`, heads * hd, rank);
    matrix(`${at}.attn.wkv`, hd, D);
    gain(`${at}.attn.kv_norm`, hd);
    add(`${at}.attn.attn_sink`, [heads], 1, 0, 'F32');
    matrix(`${at}.attn.wo_a`, G * R, (heads * hd) / G);
    matrix(`${at}.attn.wo_b`, D, G * R);
    if (kind === 'all') compressor(`${at}.attn.compressor`, 16, hd, hd);
    if (kind === 'chosen') {
      compressor(`${at}.attn.compressor`, 4, 2 * hd, hd);
      matrix(`${at}.attn.indexer.wq_b`, nI * dI, rank);
      matrix(`${at}.attn.indexer.weights_proj`, nI, D);
      compressor(`${at}.attn.indexer.compressor`, 4, 2 * dI, dI);
    }
    matrix(`${at}.ffn.gate`, E, D);
    if (n < 2) {
      const table = Array.from({ length: V }, (_, id) => [id % E, (id + 1 + (id % 3)) % E]).flat();
      out.push({ name: name(`${at}.ffn.gate.tid2eid`), dtype: 'I64', shape: [V, k], bytes: int64Bytes(table) });
    } else add(`${at}.ffn.gate.bias`, [E], 0.5, 0, 'F32');
    for (let e = 0; e < E; e++) expert(`${at}.ffn.experts.${e}`);
    expert(`${at}.ffn.shared_experts`);
  });
  if (options.extras === true) {
    matrix('mtp.0.e_proj', D, D);
    out.push({ name: 'mtp.0.attn.wq_a.weight', dtype: 'F8_E4M3', shape: [rank, D], bytes: new Uint8Array(rank * D) });
  }
  return out;
}
