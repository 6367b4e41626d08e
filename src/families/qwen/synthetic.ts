/**
 * Made-up Qwen4-Exp models: the real architecture, binder and plans over random weights that are made in memory. For
 * measurements; their answers mean nothing.
 *
 * Invariants: the configuration passes the rules of every config.json, and the tensors are exactly those that a checkpoint
 * of it would have to hold, since the inventory itself asks for them; equal seeds give equal weights.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PlumblineError } from '../../errors.js';
import type { Backend, MemoryBlock } from '../../engine/backends/backend.js';
import { toFloat32 } from '../../weights/convert.js';
import { memorySource } from '../../weights/file.js';
import { JsonKeys } from '../../weights/json-file.js';
import type { JsonObject } from '../../weights/strict-json.js';
import type { TensorRef } from '../../weights/tensor.js';
import type { TensorSupply } from '../../weights/tensor-taker.js';
import type { AssembleOptions, ProvidedWeights } from '../assemble.js';
import { RandomWeights } from '../random-weights.js';
import type { LoadProgress } from '../weight-source.js';
import { assembleQwen } from './assemble.js';
import { parseQwenConfig } from './config.js';
import type { Qwen4Config, QwenConfig } from './config-types.js';
import { takeQwen } from './inventory.js';
import { ngramConstants } from './ngram-constants.js';

/**
 * `standard`: half of Qwen 3.8 Flash Next in every width, 20 of its 48 layers, 8 of 32 experts: about 0.6 billion active
 * parameters of 1.3 billion. `tiny`: every part of the architecture in a few megabytes, for tests.
 */
export type SyntheticSize = 'standard' | 'tiny';

const COMMON = {
  model_type: 'qwen4_exp_text',
  hc_count: 4,
  indexer_kv_heads: 1,
  indexer_compress_ratio: 4,
  linear_conv_kernel_dim: 4,
  ngram_size: 3,
  output_gate_type: 'sigmoid',
  rope_parameters: { rope_theta: 1e7, partial_rotary_factor: 0.25, mrope_section: [11, 11, 10] },
  eos_token_id: 1,
  ple_layer_ids: [2],
  mtp_num_hidden_layers: 1,
} as const;

const SIZES: Readonly<Record<SyntheticSize, JsonObject>> = {
  standard: {
    ...COMMON,
    vocab_size: 32768,
    hidden_size: 1280,
    num_hidden_layers: 20,
    num_attention_heads: 12,
    num_key_value_heads: 2,
    head_dim: 256,
    linear_num_key_heads: 8,
    linear_num_value_heads: 24,
    linear_key_head_dim: 128,
    linear_value_head_dim: 128,
    hc_lowrank: 160,
    num_experts: 32,
    num_experts_per_tok: 8,
    moe_intermediate_size: 320,
    shared_expert_intermediate_size: 320,
    indexer_n_heads: 4,
    indexer_head_dim: 128,
    indexer_budget: 2048,
    heads_per_ngram: 8,
    ngram_vocab_size_base: 8192,
  },
  tiny: {
    ...COMMON,
    vocab_size: 384,
    hidden_size: 64,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 32,
    linear_num_key_heads: 2,
    linear_num_value_heads: 4,
    linear_key_head_dim: 16,
    linear_value_head_dim: 16,
    hc_lowrank: 24,
    num_experts: 8,
    num_experts_per_tok: 2,
    moe_intermediate_size: 32,
    shared_expert_intermediate_size: 48,
    indexer_n_heads: 4,
    indexer_head_dim: 16,
    indexer_budget: 64,
    heads_per_ngram: 2,
    ngram_vocab_size_base: 211,
  },
};

export function syntheticQwenConfig(size: SyntheticSize): Qwen4Config {
  const config = parseQwenConfig(new JsonKeys(SIZES[size], `the synthetic ${size} configuration`, ''));
  if (config.family !== 'qwen4_exp') throw new PlumblineError('internal_error', 'a synthetic model of another family');
  return config;
}

export interface SyntheticQwenOptions extends AssembleOptions {
  /** Whether it has a draft head; default false. */
  readonly draftHead?: boolean | undefined;
  readonly size: SyntheticSize;
  readonly seed: number;
}

/** @throws invalid_option, model_too_large, out_of_memory, request_cancelled */
export async function loadSyntheticQwen(options: SyntheticQwenOptions) {
  const config = syntheticQwenConfig(options.size);
  const supply = new SyntheticSupply(config);
  const random = new RandomWeights(options.seed);
  const weights = takeQwen(supply, 'model', config, options.draftHead ?? false);
  const { backend, progress, signal } = options;
  const assembled = await assembleQwen(options, {
    config,
    weights,
    provide: async (tensors) => SyntheticWeights.make(backend, random, tensors, progress, signal),
    tableSource: (shard) => memorySource(asBytes(random, shard)),
    tableBytes: supply.tableBytes,
    tablePlace: 'in-memory',
    release: () => undefined,
  });
  return { ...assembled, parameters: supply.parameters };
}

/** Has every tensor that it is asked for, in bfloat16, each in a place of its own. */
class SyntheticSupply implements TensorSupply {
  readonly #tensors = new Map<string, TensorRef>();
  /** Rows of the n-gram tables, in the order of their layers. */
  readonly #tableRows: number[];
  tableBytes = 0;

  constructor(config: QwenConfig) {
    const ple = config.family === 'qwen4_exp' ? config.ple : undefined;
    this.#tableRows = (ple?.layers ?? []).map((_, index) => ngramConstants(ple!, index, config.vocabSize).rows);
  }

  /** Decides between layouts: experts are stacked, n-gram tables whole, and there is a draft head for who wants it. */
  has(name: string): boolean {
    return (
      name.endsWith('.experts.gate_up_proj') ||
      name.endsWith('.ngram_embedding.weight') ||
      name === 'mtp.fc_hidden.weight'
    );
  }

  names(): Iterable<string> {
    return this.#tensors.keys();
  }

  take(name: string, shape: readonly number[]): TensorRef {
    const byteLength = 2 * elements(shape);
    const tensor: TensorRef = { name, file: 'memory', dtype: 'BF16', shape, byteOffset: 0, byteLength };
    this.#tensors.set(name, tensor);
    return tensor;
  }

  takeRows(name: string, columns: number): TensorRef {
    const rows = this.#tableRows.shift();
    if (rows === undefined) throw new PlumblineError('internal_error', `${name} is no table of this configuration`);
    const table = this.take(name, [rows, columns]);
    this.tableBytes += table.byteLength;
    return table;
  }

  compareConstants(): void {
    // Nothing is stored that could differ from its formula.
  }

  /** Elements of all tensors. */
  get parameters(): number {
    return [...this.#tensors.values()].reduce((sum, { shape }) => sum + elements(shape), 0);
  }
}

class SyntheticWeights implements ProvidedWeights {
  readonly #random: RandomWeights;
  readonly #blocks = new Map<string, MemoryBlock>();

  private constructor(random: RandomWeights) {
    this.#random = random;
  }

  static async make(
    backend: Backend,
    random: RandomWeights,
    tensors: readonly TensorRef[],
    progress?: LoadProgress,
    signal?: AbortSignal,
  ): Promise<SyntheticWeights> {
    const weights = new SyntheticWeights(random);
    const totalBytes = tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0);
    let loadedBytes = 0;
    try {
      for (const { name, shape, byteLength } of tensors) {
        await nextTurn();
        if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'making weights was cancelled');
        const block = backend.allocate(byteLength, `tensor ${name}`);
        weights.#blocks.set(name, block);
        const { buffer, byteOffset } = block.bytes;
        random.fill(name, shape, new Uint16Array(buffer, byteOffset, byteLength / 2));
        loadedBytes += byteLength;
        progress?.({ loadedBytes, totalBytes });
      }
    } catch (error) {
      weights.free();
      throw error;
    }
    return weights;
  }

  address({ name }: TensorRef): number {
    const block = this.#blocks.get(name);
    if (!block) throw new PlumblineError('internal_error', `tensor ${name} was not made`);
    return block.address;
  }

  float32(tensor: TensorRef): Float32Array {
    const values = new Float32Array(elements(tensor.shape));
    toFloat32('BF16', asBytes(this.#random, tensor), values);
    return values;
  }

  free(): void {
    for (const block of this.#blocks.values()) block.free();
    this.#blocks.clear();
  }
}

/** The stored form of a tensor, outside the backend's memory. */
function asBytes(random: RandomWeights, { name, shape }: TensorRef): Uint8Array {
  const values = new Uint16Array(elements(shape));
  random.fill(name, shape, values);
  return new Uint8Array(values.buffer);
}

function elements(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}
