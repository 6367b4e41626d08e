/**
 * Opens a Qwen checkpoint: configuration, inventory, weights in backend memory, tables, model.
 *
 * Invariants: everything is checked before the first weight is read; on any failure all files, mappings and blocks are
 * given back; only tensors of the text forward pass enter memory.
 */
import { PlumblineError } from '../../errors.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import { RowTable } from '../../weights/gather.js';
import { openCheckpoint, type Checkpoint } from '../../weights/checkpoint.js';
import { readMachineMemory } from '../../weights/machine-memory.js';
import { planMemory, requireFit } from '../../weights/memory-plan.js';
import { readGenerationConfig } from '../../weights/generation-config.js';
import type { FloatDtype, TensorRef } from '../../weights/tensor.js';
import type { FamilyLoadOptions, LoadedModel } from '../load.js';
import { LoadedWeights } from '../weight-source.js';
import { bindQwen, type BoundQwen } from './bind.js';
import { readQwenConfig } from './config.js';
import type { QwenConfig } from './config-types.js';
import { inventoryQwen } from './inventory.js';
import { QWEN_ACTIVATION_LAWS } from './laws.js';
import { QwenModel } from './model.js';
import { NgramHash } from './ngram.js';
import { qwenWorkspaceWords } from './plan-builder.js';
import { qwenStateLayout } from './state-layout.js';
import { maxHeadRows, type PleTable } from './trunk.js';
import type { QwenWeights } from './weight-map.js';

/** @throws checkpoint_*, safetensors_invalid, config_*, tensor_*, invalid_option, model_too_large, out_of_memory */
export async function loadQwen(options: FamilyLoadOptions): Promise<LoadedModel> {
  const { dir, backend, maxRows, sequences } = options;
  const config = readQwenConfig(dir);
  const generation = readGenerationConfig(dir, config.vocabSize);
  const contextLength = checkContext(options.contextLength, config);
  const checkpoint = openCheckpoint(dir);
  try {
    const { weights, report } = inventoryQwen(checkpoint, config, options.draftHead);
    const law = activationLaw(options.dtype, weights.embedTokens);
    const dry = bindDry(config, weights, law);
    const workspaceWords = largestWorkspace(config, law, dry.bound, maxRows);
    const { layout } = qwenStateLayout(config, law);
    const memory = planMemory(
      {
        weightBytes: dry.tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0),
        gatheredBytes: report.gatheredBytes,
        stateFixedBytes: 2 * layout.fixedBytes,
        statePerTokenBytes: layout.pageBytes / layout.pageTokens,
        workspaceBytes: 4 * (workspaceWords + contextLength * config.attention.rotaryDim),
        contextTokens: contextLength,
        sequences,
      },
      readMachineMemory(),
    );
    options.onMemoryPlan?.(memory);
    requireFit(memory);
    const loaded = await LoadedWeights.load(backend, checkpoint, dry.tensors, options.progress, options.signal);
    const table = new WeightTable();
    try {
      const bound = bindQwen({ config, weights, law, source: loaded, table, positions: contextLength });
      table.commit(backend);
      const model = new QwenModel({
        id: options.id,
        config,
        backend,
        law,
        gatePolicy: options.gatePolicy,
        bound,
        weights: table,
        pleTables: pleTables(checkpoint, config, weights),
        contextLength,
        maxRows,
        sequences,
        workspaceWords,
        release: () => {
          loaded.free();
          checkpoint.close();
        },
      });
      return { model, generation, eosTokenIds: config.eosTokenIds, report, memory };
    } catch (error) {
      table.free();
      loaded.free();
      throw error;
    }
  } catch (error) {
    checkpoint.close();
    throw error;
  }
}

/** The law of `--dtype`; `auto` takes the checkpoint's own dtype, float16 widened to float32. */
export function activationLaw(dtype: string, embedTokens: TensorRef): ActivationLaw {
  const name = dtype === 'auto' ? (embedTokens.dtype === 'BF16' ? 'bf16' : 'f32') : dtype;
  const law = QWEN_ACTIVATION_LAWS.find((candidate) => candidate.name === name);
  if (law) return law;
  const names = QWEN_ACTIVATION_LAWS.map((candidate) => candidate.name).join(', ');
  throw new PlumblineError('invalid_option', `dtype ${name} is not one of auto, ${names} for this model`, {
    param: 'dtype',
  });
}

function checkContext(asked: number | undefined, config: QwenConfig): number {
  if (asked === undefined) return Math.min(config.maxPositions, DEFAULT_CONTEXT);
  if (asked <= config.maxPositions) return asked;
  throw new PlumblineError(
    'invalid_option',
    `a context of ${asked} passes the model's max_position_embeddings of ${config.maxPositions}`,
    { param: 'context' },
  );
}

const DEFAULT_CONTEXT = 32768;

/** Binds against nothing: finds the tensors whose address binding asks for, before any of them is in memory. */
function bindDry(
  config: QwenConfig,
  weights: QwenWeights,
  law: ActivationLaw,
): { bound: BoundQwen; tensors: TensorRef[] } {
  const tensors = new Map<string, TensorRef>();
  const bound = bindQwen({
    config,
    weights,
    law,
    table: new WeightTable(),
    positions: 0,
    source: {
      address: (tensor) => {
        tensors.set(tensor.name, tensor);
        return 0;
      },
      float32: () => new Float32Array(0),
    },
  });
  return { bound, tensors: [...tensors.values()] };
}

function largestWorkspace(config: QwenConfig, law: ActivationLaw, bound: BoundQwen, maxRows: number): number {
  const state = qwenStateLayout(config, law);
  return qwenWorkspaceWords({
    config,
    bound,
    state,
    plan: {
      law,
      pageTokens: state.layout.pageTokens,
      rowCapacity: maxRows,
      outCapacity: maxHeadRows(config.vocabSize, maxRows),
      standaloneTable: bound.standaloneTable,
      fusedTable: bound.fusedTable,
    },
    lowering: 'standalone',
    gatePolicy: 'strict',
    taps: false,
  });
}

function pleTables(checkpoint: Checkpoint, config: QwenConfig, weights: QwenWeights): PleTable[] {
  if (config.family !== 'qwen4_exp' || weights.family !== 'qwen4_exp' || !config.ple) return [];
  const { eosTokenId } = config.ple;
  return weights.layers.flatMap(({ ple }, layer): PleTable[] => {
    if (!ple) return [];
    const pieces = ple.table.shards.map((shard) => ({
      source: checkpoint.source(shard),
      byteOffset: shard.byteOffset,
      rows: shard.shape[0] ?? 0,
      dtype: shard.dtype as FloatDtype,
    }));
    const table = new RowTable(pieces, ple.table.width);
    return [{ layer, hash: new NgramHash(ple.constants, eosTokenId, config.vocabSize), table }];
  });
}
