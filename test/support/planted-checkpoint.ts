/**
 * A small Qwen checkpoint with a draft head in which every phase-dependent gate, of every row and layer, is exactly the one
 * bfloat16 input where the two lowerings differ: attention gates and the shared expert's -6.84375, injection logits
 * -6.84375 * hc_count, n-gram scores whose square root is -6.84375. All else is random.
 *
 * How: channel 0 of every residual stream holds 2048, next to which the others vanish in the mean of squares, so its norm
 * is exactly 4 in bfloat16 (of 16 channels), and its part in a block's input exactly 2. Gates read that channel alone; no
 * other map reads or writes it; the other maps are scaled up by as much as the norm scales their inputs down.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseQwenConfig } from '../../src/families/qwen/config.js';
import type { Qwen4Config } from '../../src/families/qwen/config-types.js';
import { fromBf16Bits } from '../../src/numerics/rounding.js';
import { JsonKeys } from '../../src/weights/json-file.js';
import type { JsonObject } from '../../src/weights/strict-json.js';
import { checkpointTensors, tinyQwen4Config, writeJson } from './write-checkpoint.js';
import { encodeSafetensors, floatBytes, type TensorData } from './write-safetensors.js';

export const SENSITIVE = -6.84375;

/** What channel 0 of every stream holds, and what the other channels are scaled by in its company. */
const BIAS = 2048;
const SCALE = BIAS / 4;

export interface PlantedCheckpoint {
  readonly config: Qwen4Config;
  /** All tensors by name, bfloat16 values as float32. */
  readonly tensors: ReadonlyMap<string, Float32Array>;
}

/** Writes the checkpoint into `dir`; a linear-attention layer with n-gram embedding, then an attention layer. */
export function writePlantedCheckpoint(dir: string, streams: 2 | 4 = 2): PlantedCheckpoint {
  const json = tinyQwen4Config({
    hc_count: streams,
    num_hidden_layers: 2,
    layer_types: ['linear_attention', 'full_attention'],
    indexer_budget: 64, // beyond every test here: all tokens stay visible
    mtp_num_hidden_layers: 1,
  });
  const config = parse(json);
  const trunk = checkpointTensors(json, { seed: 5 });
  const tensors = [...trunk, ...draftHeadTensors(json, 6)].map((tensor) => plant(tensor, config));
  writeJson(dir, 'config.json', json);
  writeJson(dir, 'generation_config.json', { eos_token_id: 1 });
  writeFileSync(join(dir, 'model.safetensors'), encodeSafetensors(tensors, { format: 'pt' }));
  return { config, tensors: new Map(tensors.map((tensor) => [tensor.name, valuesOf(tensor)])) };
}

function parse(json: Record<string, unknown>): Qwen4Config {
  const config = parseQwenConfig(new JsonKeys(json as JsonObject, 'config.json', ''));
  if (config.family !== 'qwen4_exp') throw new TypeError('the planted configuration is of another family');
  return config;
}

/** The layer and the mixer of a one-layer model under the draft head's names, and the maps in front of them. */
export function draftHeadTensors(json: Record<string, unknown>, seed: number): TensorData[] {
  const { hiddenSize: H, hyperConnections } = parse(json);
  const oneLayer = { ...json, num_hidden_layers: 1, layer_types: ['full_attention'], ple_layer_ids: [] };
  const layer = checkpointTensors(oneLayer, { seed }).filter(({ name }) => /layers|hyper_connection/.test(name));
  const square = checkpointTensors({ ...oneLayer, vocab_size: H }, { seed: seed + 1 }).find(({ name }) =>
    /lm_head/.test(name),
  )!;
  const zeros = (name: string, length: number): TensorData => ({
    ...{ name, dtype: 'BF16', shape: [length] },
    bytes: new Uint8Array(2 * length),
  });
  return [
    ...layer.map((tensor) => ({ ...tensor, name: tensor.name.replace(/^model\./, 'mtp.') })),
    zeros('mtp.pre_fc_norm_hidden.weight', hyperConnections.streams * H),
    zeros('mtp.pre_fc_norm_embedding.weight', H),
    { ...square, name: 'mtp.fc_hidden.weight' },
    { ...square, name: 'mtp.fc_embedding.weight' },
  ];
}

type Change = (values: Float32Array, columns: number, config: Qwen4Config) => void;

/** What each kind of tensor gets, by the end of its name; the others stay random. */
const CHANGES: readonly (readonly [RegExp, Change])[] = [
  [/embed_tokens\.weight$/, (values, columns) => fillColumn(values, columns, 0, BIAS)],
  [/hc_norm\.weight$|norm_query\.weight$/, (values, _, { hiddenSize }) => fillColumn(values, hiddenSize, 0, 0)],
  // Maps of a read of the streams: down and, by one column of the first stream, inject; up leaves channel 0 at sigma(0).
  [/input_mix_weight_down\.weight$/, (values, _, { hiddenSize }) => readOthers(values, hiddenSize)],
  [/input_mix_weight_up\.weight$/, (values, columns, { hiddenSize }) => clearOutputs(values, columns, hiddenSize)],
  [
    /block_inject_weight\.weight$/,
    (values, columns, { hyperConnections }) => {
      values.fill(0);
      fillColumn(values, columns, 0, (SENSITIVE * hyperConnections.streams) / 4);
    },
  ],
  [
    /q_proj\.weight$/,
    (values, columns, { attention: { headDim } }) => {
      readOthers(values, columns);
      for (let row = 0; row < values.length / columns; row++) {
        if (row % (2 * headDim) < headDim) continue; // a head has its queries, then its gates
        values.fill(0, row * columns, (row + 1) * columns);
        values[row * columns] = SENSITIVE / 2;
      }
    },
  ],
  [
    /shared_expert_gate\.weight$/,
    (values) => {
      values.fill(0);
      values[0] = SENSITIVE / 2;
    },
  ],
  [/(?:k_proj|v_proj|index_qk_proj|mlp\.gate|in_proj_.*|gate_proj|up_proj|lm_head)\.weight$/, readOthers],
  // What a block gives back: scaled until its gated, injected result is about as large as the residual.
  [/(?:o_proj|shared_expert\.down_proj)\.weight$/, (values, columns) => writeOthers(values, columns, 2 ** 18)],
  [/linear_attn\.out_proj\.weight$|down_proj\.weight$/, (values, columns) => writeOthers(values, columns, 128)],
  // The n-gram score: key 4 * -11.6875 times query 4, divided by sqrt(16).
  [/ngram_embedding\.weight$/, (values, columns) => fillColumn(values, columns, 0, 1)],
  [
    /key_proj\.weight$/,
    (values, columns, { hiddenSize }) => {
      clearOutputs(values, columns, hiddenSize);
      for (let at = 0; at < values.length; at += columns * hiddenSize) values[at] = 1024;
    },
  ],
  [/norm_key\.weight$/, (values, _, { hiddenSize }) => fillColumn(values, hiddenSize, 0, -46.75 / 4 - 1)],
  [/value_proj\.weight$/, (values, columns) => writeOthers(values, columns, 1024)],
  // The draft head: its own channel 0 is made from the trunk's.
  [
    /fc_hidden\.weight$/,
    (values, columns) => {
      readOthers(values, columns);
      clearOutputs(values, columns, values.length / columns);
      values[0] = SCALE;
    },
  ],
  [
    /fc_embedding\.weight$/,
    (values, columns) => {
      readOthers(values, columns);
      clearOutputs(values, columns, values.length / columns);
    },
  ],
];

function plant(tensor: TensorData, config: Qwen4Config): TensorData {
  const change = CHANGES.find(([name]) => name.test(tensor.name))?.[1];
  if (!change) return tensor;
  const values = valuesOf(tensor);
  change(values, tensor.shape.at(-1)!, config);
  return { ...tensor, bytes: floatBytes('BF16', values) };
}

/** Column `column` of every group of `columns`. */
function fillColumn(values: Float32Array, columns: number, column: number, value: number): void {
  for (let at = column; at < values.length; at += columns) values[at] = value;
}

/** Inputs without channel 0 (of every group of `width`), the others scaled up. */
function readOthers(values: Float32Array, width: number): void {
  values.forEach((value, i) => (values[i] = i % width === 0 ? 0 : value * SCALE));
}

/** No output to channel 0 of every group of `hidden` outputs. */
function clearOutputs(values: Float32Array, columns: number, hidden: number): void {
  for (let at = 0; at < values.length; at += columns * hidden) values.fill(0, at, at + columns);
}

function writeOthers(values: Float32Array, columns: number, scale: number): void {
  values.forEach((value, i) => (values[i] = i < columns ? 0 : value * scale));
}

function valuesOf({ dtype, bytes }: TensorData): Float32Array {
  if (dtype !== 'BF16') return new Float32Array(0); // integer constants
  return Float32Array.from(new Uint16Array(bytes.slice().buffer), fromBf16Bits);
}
