/**
 * A DeepSeek V4 model out of its weight map and a way to bring tensors into memory.
 *
 * Invariants: the model cannot be taken back within a forward, so it has no speculation; a sequence holds the state before
 * a forward and the one behind it.
 */
import { stateLimits } from '../../engine/state/sequence-state.js';
import type { MemoryPlan } from '../../weights/memory-plan.js';
import type { TensorRef } from '../../weights/tensor.js';
import { activationLaw, assembleModel, checkContext, type AssembleOptions, type ProvidedWeights } from '../assemble.js';
import { PagedModel } from '../paged-model.js';
import { maxHeadRows, PagedTrunk } from '../paged-trunk.js';
import { bindDeepseek, ropeTableCount, type BoundDeepseek } from './bind.js';
import type { DeepseekConfig } from './config-types.js';
import { DEEPSEEK_ACTIVATION_LAWS, DEEPSEEK_LAWS, ONLY_F32 } from './laws.js';
import { buildDeepseekPlan, deepseekWorkspaceWords } from './plan-builder.js';
import { deepseekStateLayout } from './state-layout.js';
import type { DeepseekWeights } from './weight-map.js';

/** Values of a state that a sequence holds at most: before a forward, and behind it. */
const STATE_VALUES = 2;

/** What a model is made of. */
export interface DeepseekMaterial {
  readonly config: DeepseekConfig;
  readonly weights: DeepseekWeights;
  /** Of the checkpoint's contents; absent: no state is kept beyond its request. */
  readonly modelHash?: string | undefined;
  /** Brings tensors into the memory of the backend. */
  readonly provide: (tensors: readonly TensorRef[]) => Promise<ProvidedWeights>;
  /** Called when the model is closed, after its weights were freed. */
  readonly release: () => void;
}

/** @throws invalid_option, model_too_large, out_of_memory, and what `provide` throws */
export function assembleDeepseek(
  options: AssembleOptions,
  { config, weights, modelHash, provide, release }: DeepseekMaterial,
): Promise<{ readonly model: PagedModel; readonly memory: MemoryPlan }> {
  const { backend, gatePolicy, maxRows, sequences } = options;
  const contextLength = checkContext(options.contextLength, config.maxPositions);
  const law = activationLaw(options.dtype, 'f32', DEEPSEEK_ACTIVATION_LAWS, ONLY_F32);
  const state = deepseekStateLayout(config, law);
  const { layout } = state;
  const hiddenWidth = config.hyper.streams * config.hiddenSize;
  const planOptions = (bound: BoundDeepseek, rowCapacity: number, outCapacity: number, taps: boolean) => ({
    config,
    bound,
    state,
    taps,
    plan: {
      law,
      pageTokens: layout.pageTokens,
      rowCapacity,
      outCapacity,
      standaloneTable: -1,
      fusedTable: -1,
    },
  });
  return assembleModel(options, {
    bind: (source, table, positions) => bindDeepseek({ config, weights, source, table, positions }),
    provide,
    workspaceWords: (bound) =>
      deepseekWorkspaceWords(planOptions(bound, maxRows, maxHeadRows(config.vocabSize, maxRows), false)),
    layout,
    stateValues: STATE_VALUES,
    contextLength,
    derivedBytes: derivedBytes(config, weights, contextLength),
    model: ({ bound, weights: table, workspaceWords, kept, release: releaseAll }) =>
      new PagedModel(
        {
          family: config.family,
          id: options.id,
          laws: DEEPSEEK_LAWS,
          law,
          gatePolicy,
          contextLength,
          identity: modelHash === undefined ? undefined : { modelHash, floatLaw: backend.floatLaw },
          weights: table,
          release: releaseAll,
        },
        new PagedTrunk({
          shape: {
            vocabSize: config.vocabSize,
            hiddenSize: config.hiddenSize,
            hiddenWidth,
            layerCount: config.layerTypes.length,
          },
          backend,
          law,
          gatePolicy,
          weights: table,
          layout,
          limits: stateLimits(layout, sequences, contextLength, STATE_VALUES, kept),
          maxRows,
          workspaceWords,
          lowering: () => 'standalone',
          build: (key) => buildDeepseekPlan(planOptions(bound, key.rowCapacity, key.outCapacity, key.taps), table),
        }),
      ),
    release,
  });
}

/** Rotary tables and expert tables: what binding makes beside the tensors. */
function derivedBytes(config: DeepseekConfig, weights: DeepseekWeights, positions: number): number {
  const tables = weights.layers.reduce((sum, { ffn }) => sum + (ffn.expertsOfToken?.byteLength ?? 0), 0);
  return tables + 4 * positions * config.attention.rotaryDim * ropeTableCount(config);
}
