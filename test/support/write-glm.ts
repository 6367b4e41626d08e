/**
 * Writes small random GLM checkpoints, multimodal names or text-only ones. The same options give the same bytes. Names and
 * shapes are spelled out here once more, from the published layout, so that a test on such a folder also judges the
 * inventory.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { seededRandom } from './op-case-writer.js';
import { writeJson } from './write-checkpoint.js';
import { encodeSafetensors, floatBytes, type TensorData } from './write-safetensors.js';

type Json = Record<string, unknown>;
type Dtype = 'BF16' | 'F16' | 'F32';

/** Four layers: linear, sparse with an indexer, linear, sparse that shares; dense, then three of experts. */
export function tinyGlmConfig(overrides: Json = {}): Json {
  return {
    model_type: 'glm5_next_text',
    vocab_size: 272,
    hidden_size: 16,
    num_hidden_layers: 4,
    intermediate_size: 24,
    moe_intermediate_size: 8,
    n_routed_experts: 4,
    num_experts_per_tok: 2,
    n_shared_experts: 2,
    linear_num_heads: 2,
    linear_head_dim: 4,
    linear_conv_kernel_dim: 3,
    num_attention_heads: 2,
    num_key_value_heads: 2,
    q_lora_rank: 8,
    kv_lora_rank: 6,
    qk_nope_head_dim: 4,
    v_head_dim: 5,
    index_n_heads: 2,
    index_head_dim: 4,
    index_topk: 8,
    index_kpool: 4,
    hc_mult: 2,
    layer_types: ['linear_attention', 'deepseek_sparse_attention', 'linear_attention', 'full_attention'],
    mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse'],
    indexer_types: ['full', 'full', 'full', 'shared'],
    max_position_embeddings: 512,
    eos_token_id: 1,
    ...overrides,
  };
}

export interface GlmCheckpointOptions {
  readonly config?: Json;
  readonly root?: 'model' | 'model.language_model';
  readonly dtype?: Dtype;
  /** Put the text config into a wrapper config. */
  readonly wrapper?: boolean;
  /** Tensors of a layer behind the last and of a vision tower. */
  readonly extras?: boolean;
  /** No output map of its own. */
  readonly tied?: boolean;
}

/** Write a checkpoint into `dir` (made when absent). Returns the tensors that were written, in file order. */
export function writeGlmCheckpoint(dir: string, options: GlmCheckpointOptions = {}): readonly TensorData[] {
  const config = options.config ?? tinyGlmConfig({ tie_word_embeddings: options.tied ?? false });
  mkdirSync(dir, { recursive: true });
  writeJson(dir, 'config.json', options.wrapper === true ? { model_type: 'glm5_next', text_config: config } : config);
  writeJson(dir, 'generation_config.json', { eos_token_id: 1 });
  const tensors = glmTensors(options);
  writeFileSync(join(dir, 'model.safetensors'), encodeSafetensors(tensors, { format: 'pt' }));
  return tensors;
}

/** The tensors of the tiny configuration's sizes; its layer kinds are fixed. */
export function glmTensors(options: GlmCheckpointOptions = {}): TensorData[] {
  const [D, H, V, E, M, F] = [16, 2, 272, 4, 8, 24];
  const [nl, dl, Kc, nh, rank, C, dk, dv] = [2, 4, 3, 2, 8, 6, 4, 5];
  const [nI, dI, K] = [2, 4, 4];
  const Q = nl * dl;
  const { root = 'model', dtype = 'BF16' } = options;
  const random = seededRandom('glm checkpoint');
  const out: TensorData[] = [];
  const add = (name: string, shape: number[], scale: number, centre = 0, as: Dtype = dtype): void => {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Float32Array.from({ length: count }, () => centre + (random() + random() + random() - 1.5) * scale);
    out.push({ name, dtype: as, shape, bytes: floatBytes(as, values) });
  };
  const matrix = (name: string, outs: number, ins: number): void =>
    add(`${name}.weight`, [outs, ins], 2 / Math.sqrt(ins));
  const gain = (name: string, width: number): void => add(`${name}.weight`, [width], 0.2, 1);
  const mlp = (prefix: string, width: number): void => {
    matrix(`${prefix}.gate_proj`, width, D);
    matrix(`${prefix}.up_proj`, width, D);
    matrix(`${prefix}.down_proj`, D, width);
  };
  add(`${root}.embed_tokens.weight`, [V, D], 1);
  if (options.tied !== true) matrix('lm_head', V, D);
  gain(`${root}.norm`, D);
  for (let n = 0; n < 4; n++) {
    const at = `${root}.layers.${n}`;
    for (const part of ['attn', 'ffn']) {
      add(`${at}.hc_${part}_fn`, [(2 + H) * H, H * D], 0.4);
      add(`${at}.hc_${part}_base`, [(2 + H) * H], 1);
      add(`${at}.hc_${part}_scale`, [3], 0.2, 1);
    }
    gain(`${at}.input_layernorm`, D);
    gain(`${at}.post_attention_layernorm`, D);
    const self = `${at}.self_attn`;
    if (n % 2 === 0) {
      for (const part of ['q', 'k', 'v']) {
        matrix(`${self}.${part}_proj`, Q, D);
        add(`${self}.${part}_conv1d.weight`, [Q, 1, Kc], 1, 0, 'F32');
      }
      for (const part of ['f', 'g']) {
        matrix(`${self}.${part}_a_proj`, dl, D);
        matrix(`${self}.${part}_b_proj`, Q, dl);
      }
      add(`${self}.dt_bias`, [Q], 1, 0, 'F32');
      add(`${self}.A_log`, [nl], 1, 0, 'F32');
      matrix(`${self}.b_proj`, nl, D);
      gain(`${self}.o_norm`, dl);
      matrix(`${self}.o_proj`, D, Q);
    } else {
      matrix(`${self}.q_a_proj`, rank, D);
      gain(`${self}.q_a_layernorm`, rank);
      matrix(`${self}.q_b_proj`, nh * dk, rank);
      matrix(`${self}.kv_a_proj_with_mqa`, C, D);
      gain(`${self}.kv_a_layernorm`, C);
      matrix(`${self}.kv_b_proj`, nh * (dk + dv), C);
      matrix(`${self}.o_proj`, D, nh * dv);
    }
    if (n === 1) {
      matrix(`${self}.indexer.wq_b`, nI * dI, rank);
      matrix(`${self}.indexer.wk`, dI, D);
      gain(`${self}.indexer.k_norm`, dI);
      add(`${self}.indexer.k_norm.bias`, [dI], 0.5);
      matrix(`${self}.indexer.weights_proj`, nI, D);
      add(`${self}.indexer.index_kpool_compress_gate`, [dI, D], 0.5);
      add(`${self}.indexer.index_kpool_compress_ape`, [K, dI], 1);
    }
    if (n === 0) {
      mlp(`${at}.mlp`, F);
      continue;
    }
    matrix(`${at}.mlp.gate`, E, D);
    add(`${at}.mlp.gate.e_score_correction_bias`, [E], 0.5, 0, 'F32');
    for (let e = 0; e < E; e++) mlp(`${at}.mlp.experts.${e}`, M);
    mlp(`${at}.mlp.shared_experts`, 2 * M);
  }
  if (options.extras === true) {
    matrix(`${root}.layers.4.eh_proj`, D, 2 * D);
    gain(`${root}.layers.4.shared_head.norm`, D);
    matrix('model.visual.patch_embed.proj', 8, 12);
  }
  return out;
}
