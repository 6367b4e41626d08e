/**
 * Puts a Qwen model together from a configuration, a weight map and whoever brings the tensors into memory: the part of
 * loading that is the same for a checkpoint and for made-up weights.
 *
 * Invariants: the memory plan is made, shown and checked before the first tensor is asked for; only tensors that binding
 * names are asked for; on a failure everything that was provided is given back.
 */
import { PlumblineError } from '../../errors.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import type { ByteSource } from '../../weights/file.js';
import { heldIfSmall, RowTable } from '../../weights/gather.js';
import { readMachineMemory } from '../../weights/machine-memory.js';
import { planMemory, requireFit, type MemoryPlan } from '../../weights/memory-plan.js';
import type { FloatDtype, TensorRef } from '../../weights/tensor.js';
import type { FamilyLoadOptions } from '../load.js';
import { bindQwen, type BoundQwen, type WeightSource } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { QWEN_ACTIVATION_LAWS } from './laws.js';
import { QwenModel, TRUNK_VALUES } from './model.js';
import { NgramHash } from './ngram.js';
import { qwenWorkspaceWords } from './plan-builder.js';
import { qwenStateLayout } from './state-layout.js';
import { maxHeadRows, type PleTable } from './trunk.js';
import type { QwenWeights } from './weight-map.js';

export type AssembleOptions = Omit<FamilyLoadOptions, 'dir' | 'draftHead'>;

/** Weights that lie in backend memory until they are freed. */
export interface ProvidedWeights extends WeightSource {
  free(): void;
}

/** What a model is made of. */
export interface QwenMaterial {
  readonly config: QwenConfig;
  readonly weights: QwenWeights;
  /** Brings tensors into the memory of the backend. */
  readonly provide: (tensors: readonly TensorRef[]) => Promise<ProvidedWeights>;
  /** The bytes around a shard of an n-gram table; the shard begins at its `byteOffset` in them. */
  readonly tableSource: (shard: TensorRef) => ByteSource;
  /** Bytes of the n-gram tables, and whether they lie in memory as a whole. */
  readonly tableBytes: number;
  readonly tablePlace: 'on-disk' | 'in-memory';
  /** Called when the model is closed, after its weights were freed. */
  readonly release: () => void;
}

/** @throws invalid_option, model_too_large, out_of_memory, and what `provide` throws */
export async function assembleQwen(
  options: AssembleOptions,
  material: QwenMaterial,
): Promise<{ readonly model: QwenModel; readonly memory: MemoryPlan }> {
  const { backend, maxRows, sequences } = options;
  const { config, weights } = material;
  const contextLength = checkContext(options.contextLength, config);
  const law = activationLaw(options.dtype, weights.embedTokens);
  const dry = bindDry(config, weights, law);
  const workspaceWords = largestWorkspace(config, law, dry.bound, maxRows);
  const { layout } = qwenStateLayout(config, law);
  const tableInMemory = material.tablePlace === 'in-memory';
  const memory = planMemory(
    {
      weightBytes:
        dry.tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0) + (tableInMemory ? material.tableBytes : 0),
      gatheredBytes: tableInMemory ? 0 : material.tableBytes,
      stateFixedBytes: TRUNK_VALUES * layout.fixedBytes,
      statePerTokenBytes: layout.pageBytes / layout.pageTokens,
      workspaceBytes: 4 * (workspaceWords + contextLength * config.attention.rotaryDim),
      contextTokens: contextLength,
      sequences,
    },
    readMachineMemory(),
  );
  options.onMemoryPlan?.(memory);
  requireFit(memory);
  const provided = await material.provide(dry.tensors);
  const table = new WeightTable();
  try {
    const bound = bindQwen({ config, weights, law, source: provided, table, positions: contextLength });
    table.commit(backend);
    const model = new QwenModel({
      id: options.id,
      config,
      backend,
      law,
      gatePolicy: options.gatePolicy,
      bound,
      weights: table,
      pleTables: pleTables(material),
      contextLength,
      maxRows,
      sequences,
      workspaceWords,
      release: () => {
        provided.free();
        material.release();
      },
    });
    return { model, memory };
  } catch (error) {
    table.free();
    provided.free();
    throw error;
  }
}

/** The law of `--dtype`; `auto` takes the checkpoint's own dtype, float16 widened to float32. */
function activationLaw(dtype: string, embedTokens: TensorRef): ActivationLaw {
  const name = dtype === 'auto' ? (embedTokens.dtype === 'BF16' ? 'bf16' : 'f32') : dtype;
  const law = QWEN_ACTIVATION_LAWS.find((candidate) => candidate.name === name);
  if (law) return law;
  const names = QWEN_ACTIVATION_LAWS.map((candidate) => candidate.name).join(', ');
  throw new PlumblineError('invalid_option', `dtype ${name} is not one of auto, ${names} for this model`, {
    param: 'dtype',
  });
}

const DEFAULT_CONTEXT = 32768;

/** The context that is asked for, or the default. Throws invalid_option when the model has no such positions. */
export function checkContext(asked: number | undefined, config: QwenConfig): number {
  if (asked === undefined) return Math.min(config.maxPositions, DEFAULT_CONTEXT);
  if (asked <= config.maxPositions) return asked;
  throw new PlumblineError(
    'invalid_option',
    `a context of ${asked} passes the model's max_position_embeddings of ${config.maxPositions}`,
    { param: 'context' },
  );
}

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

function pleTables({ config, weights, tableSource }: QwenMaterial): PleTable[] {
  if (config.family !== 'qwen4_exp' || weights.family !== 'qwen4_exp' || !config.ple) return [];
  const { eosTokenId } = config.ple;
  return weights.layers.flatMap(({ ple }, layer): PleTable[] => {
    if (!ple) return [];
    const pieces = ple.table.shards.map((shard) => ({
      source: tableSource(shard),
      byteOffset: shard.byteOffset,
      rows: shard.shape[0] ?? 0,
      dtype: shard.dtype as FloatDtype,
    }));
    const table = new RowTable(heldIfSmall(pieces, ple.table.width), ple.table.width);
    return [{ layer, hash: new NgramHash(ple.constants, eosTokenId, config.vocabSize), table }];
  });
}
