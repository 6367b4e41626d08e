/**
 * Puts a model together from its weight map and a way to bring tensors into memory: the part of loading that is the same
 * for every family, for a checkpoint and for made-up weights.
 *
 * Invariants: the memory plan is made, shown and checked before the first tensor is asked for; only tensors that binding
 * names are asked for; on a failure everything that was provided is given back.
 */
import { PlumblineError } from '../errors.js';
import type { ActivationLaw } from '../engine/plan/builder.js';
import { WeightTable } from '../engine/plan/weight-table.js';
import type { StateLayout } from '../engine/state/layout.js';
import { waitingStateBytes, type KeptStates } from '../engine/state/sequence-state.js';
import { readMachineMemory } from '../weights/machine-memory.js';
import { planMemory, requireFit, type MemoryPlan } from '../weights/memory-plan.js';
import type { TensorRef } from '../weights/tensor.js';
import type { FamilyLoadOptions } from './load.js';
import type { WeightSource } from './weight-binder.js';

export type AssembleOptions = Omit<FamilyLoadOptions, 'dir' | 'draftHead'>;

/** Weights that lie in backend memory until they are freed. */
export interface ProvidedWeights extends WeightSource {
  free(): void;
}

/** How a family binds its weight map and makes a model of it. */
export interface Assembly<Bound, Model> {
  /** Binds every tensor of the weight map. Called twice: against nothing, with `positions` 0, then for good. */
  readonly bind: (source: WeightSource, table: WeightTable, positions: number) => Bound;
  /** Brings tensors into the memory of the backend. */
  readonly provide: (tensors: readonly TensorRef[]) => Promise<ProvidedWeights>;
  /** Words of the workspace of the largest plan. */
  readonly workspaceWords: (bound: Bound) => number;
  readonly layout: StateLayout;
  /** Values of a state that a sequence holds at a time. */
  readonly stateValues: number;
  readonly contextLength: number;
  /** Bytes that are held beside the tensors that binding names, as weights, and as tables of which rows are read. */
  readonly extraWeightBytes?: number | undefined;
  readonly gatheredBytes?: number | undefined;
  /** Bytes of float32 vectors that binding derives. */
  readonly derivedBytes?: number | undefined;
  readonly model: (parts: {
    readonly bound: Bound;
    readonly weights: WeightTable;
    readonly workspaceWords: number;
    /** States that are held beyond their requests. */
    readonly kept: KeptStates;
    readonly release: () => void;
  }) => Model;
  /** Called when the model is closed, after its weights were freed. */
  readonly release: () => void;
}

/** @throws model_too_large, out_of_memory, and what `provide` throws */
export async function assembleModel<Bound, Model>(
  options: AssembleOptions,
  assembly: Assembly<Bound, Model>,
): Promise<{ readonly model: Model; readonly memory: MemoryPlan }> {
  const { layout, contextLength } = assembly;
  const dry = bindDry(assembly.bind);
  const workspaceWords = assembly.workspaceWords(dry.bound);
  const memory = planMemory(
    {
      weightBytes: dry.tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0) + (assembly.extraWeightBytes ?? 0),
      gatheredBytes: assembly.gatheredBytes ?? 0,
      stateFixedBytes: assembly.stateValues * layout.fixedBytes,
      statePerTokenBytes: layout.pageBytes / layout.pageTokens,
      workspaceBytes: 4 * workspaceWords + (assembly.derivedBytes ?? 0),
      contextTokens: contextLength,
      sequences: options.sequences,
      keptStateBytes: options.keptStateBytes,
      waitingStateBytes: options.storesStates === true ? waitingStateBytes(layout, contextLength) : 0,
    },
    readMachineMemory(),
  );
  options.onMemoryPlan?.(memory);
  requireFit(memory);
  const provided = await assembly.provide(dry.tensors);
  const table = new WeightTable();
  try {
    const bound = assembly.bind(provided, table, contextLength);
    table.commit(options.backend);
    const release = (): void => {
      provided.free();
      assembly.release();
    };
    const kept = { keptBytes: memory.keptStateBytes, waitingBytes: memory.waitingStateBytes };
    return { model: assembly.model({ bound, weights: table, workspaceWords, kept, release }), memory };
  } catch (error) {
    table.free();
    provided.free();
    throw error;
  }
}

/** Binds against nothing: finds the tensors whose address binding asks for, before any of them is in memory. */
function bindDry<Bound>(bind: Assembly<Bound, unknown>['bind']): { bound: Bound; tensors: TensorRef[] } {
  const tensors = new Map<string, TensorRef>();
  const source: WeightSource = {
    address: (tensor) => {
      tensors.set(tensor.name, tensor);
      return 0;
    },
    float32: () => new Float32Array(0),
  };
  const bound = bind(source, new WeightTable(), 0);
  return { bound, tensors: [...tensors.values()] };
}

/**
 * The law of `--dtype`, by name.
 *
 * @param auto the law that `auto` stands for
 * @param refusal why a law that the family does not offer is not offered, for the message
 * @throws invalid_option
 */
export function activationLaw(
  dtype: string,
  auto: string,
  laws: readonly ActivationLaw[],
  refusal?: string,
): ActivationLaw {
  const name = dtype === 'auto' ? auto : dtype;
  const law = laws.find((candidate) => candidate.name === name);
  if (law) return law;
  const names = laws.map((candidate) => candidate.name).join(', ');
  const why = refusal === undefined ? '' : `: ${refusal}`;
  throw new PlumblineError('invalid_option', `dtype ${name} is not one of auto, ${names} for this model${why}`, {
    param: 'dtype',
  });
}

const DEFAULT_CONTEXT = 32768;

/** The context that is asked for, or the default. Throws invalid_option when the model has no such positions. */
export function checkContext(asked: number | undefined, maxPositions: number): number {
  if (asked === undefined) return Math.min(maxPositions, DEFAULT_CONTEXT);
  if (asked <= maxPositions) return asked;
  throw new PlumblineError(
    'invalid_option',
    `a context of ${asked} passes the model's max_position_embeddings of ${maxPositions}`,
    { param: 'context' },
  );
}
