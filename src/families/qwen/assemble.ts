/**
 * Puts a Qwen model together: its weight map bound, its n-gram tables opened, its largest plan measured.
 */
import type { ActivationLaw } from '../../engine/plan/builder.js';
import type { ByteSource } from '../../weights/file.js';
import { heldIfSmall, RowTable } from '../../weights/gather.js';
import type { MemoryPlan } from '../../weights/memory-plan.js';
import type { FloatDtype, TensorRef } from '../../weights/tensor.js';
import { activationLaw, assembleModel, checkContext, type AssembleOptions, type ProvidedWeights } from '../assemble.js';
import { maxHeadRows } from '../paged-trunk.js';
import { bindQwen, type BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { QWEN_ACTIVATION_LAWS } from './laws.js';
import { QwenModel, TRUNK_VALUES } from './model.js';
import { NgramHash } from './ngram.js';
import { qwenWorkspaceWords } from './plan-builder.js';
import { qwenStateLayout } from './state-layout.js';
import { MAX_WINDOW, type PleTable } from './trunk.js';
import type { QwenWeights } from './weight-map.js';

/** What a model is made of. */
export interface QwenMaterial {
  readonly config: QwenConfig;
  readonly weights: QwenWeights;
  /** Of the checkpoint's contents; absent: no state is kept beyond its request. */
  readonly modelHash?: string | undefined;
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
  const { backend, gatePolicy, id, sequences } = options;
  const { config, weights, tableBytes } = material;
  const contextLength = checkContext(options.contextLength, config.maxPositions);
  // A window is verified in one call, however short the chunks of prompts are.
  const maxRows = Math.max(options.maxRows, MAX_WINDOW);
  // A checkpoint's own dtype, float16 widened to float32.
  const own = weights.embedTokens.dtype === 'BF16' ? 'bf16' : 'f32';
  const law = activationLaw(options.dtype, own, QWEN_ACTIVATION_LAWS);
  const tableInMemory = material.tablePlace === 'in-memory';
  return assembleModel<BoundQwen, QwenModel>(options, {
    bind: (source, table, positions) => bindQwen({ config, weights, law, source, table, positions }),
    provide: material.provide,
    workspaceWords: (bound) => largestWorkspace(config, law, bound, maxRows),
    layout: qwenStateLayout(config, law).layout,
    stateValues: TRUNK_VALUES,
    contextLength,
    extraWeightBytes: tableInMemory ? tableBytes : 0,
    gatheredBytes: tableInMemory ? 0 : tableBytes,
    derivedBytes: 4 * contextLength * config.attention.rotaryDim,
    model: (parts) =>
      new QwenModel({
        ...parts,
        ...{ id, config, backend, law, gatePolicy, contextLength, maxRows, sequences },
        modelHash: material.modelHash,
        pleTables: pleTables(material),
      }),
    release: material.release,
  });
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
