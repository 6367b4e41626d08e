/**
 * Loads a model of whichever family its config.json names. A family is a loader in the registry below; nothing else in
 * the house asks which family a model is of.
 */
import { join } from 'node:path';
import { PlumblineError } from '../errors.js';
import type { Backend } from '../engine/backends/backend.js';
import type { LanguageModel } from '../engine/model.js';
import type { GatePolicy } from '../engine/plan/phase.js';
import type { GenerationConfig } from '../weights/generation-config.js';
import type { WeightFile } from '../weights/content-hash.js';
import type { MemoryPlan } from '../weights/memory-plan.js';
import { readJsonFile } from '../weights/json-file.js';
import type { LoadReport } from './load-report.js';
import { loadDeepseek } from './deepseek/load.js';
import { loadGlm } from './glm/load.js';
import { loadQwen } from './qwen/load.js';
import type { LoadProgress } from './weight-source.js';

export interface FamilyLoadOptions {
  /** Checkpoint folder. */
  readonly dir: string;
  /** Name under which the model is served. */
  readonly id: string;
  readonly backend: Backend;
  /** `auto`, or the name of an activation law of the family. */
  readonly dtype: string;
  /** Most tokens of a sequence; undefined: the model's limit, at most 32,768. */
  readonly contextLength?: number | undefined;
  readonly gatePolicy: GatePolicy;
  /** Most rows of one plan. */
  readonly maxRows: number;
  /** Most sequences that hold a state at a time. */
  readonly sequences: number;
  /** Bytes for states that are kept for later turns; `auto`: a share of what is left. Default 0. */
  readonly keptStateBytes?: number | 'auto' | undefined;
  /** Whether states are written to a disk: some wait there. Default false. */
  readonly storesStates?: boolean | undefined;
  /** Whether to load the draft head, where the checkpoint has one. */
  readonly draftHead?: boolean | undefined;
  /** Sees the memory plan before anything is loaded, also one that does not fit. */
  readonly onMemoryPlan?: ((plan: MemoryPlan) => void) | undefined;
  readonly progress?: LoadProgress | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface LoadedModel {
  readonly model: LanguageModel;
  readonly generation: GenerationConfig;
  /** Ids that end a turn by the configuration; generation.eosTokenIds come on top. */
  readonly eosTokenIds: readonly number[];
  readonly report: LoadReport;
  /** What it was planned to take, checked against the machine before anything was loaded. */
  readonly memory: MemoryPlan;
  /** As they were when they were opened; absent for weights that no file has. */
  readonly weightFiles?: readonly WeightFile[] | undefined;
}

type FamilyLoader = (options: FamilyLoadOptions) => Promise<LoadedModel>;

const LOADERS: ReadonlyMap<string, FamilyLoader> = new Map([
  ['qwen4_exp', loadQwen],
  ['qwen4_exp_text', loadQwen],
  ['qwen3_5', loadQwen],
  ['qwen3_5_text', loadQwen],
  ['deepseek_v4', loadDeepseek],
  ['glm5_next', loadGlm],
  ['glm5_next_text', loadGlm],
]);

/** @throws config_unsupported for an unknown model_type, and what the family's loader throws */
export async function loadModel(options: FamilyLoadOptions): Promise<LoadedModel> {
  const modelType = readJsonFile(join(options.dir, 'config.json')).raw('model_type');
  const loader = typeof modelType === 'string' ? LOADERS.get(modelType) : undefined;
  if (!loader) {
    throw new PlumblineError(
      'config_unsupported',
      `model_type ${JSON.stringify(modelType ?? null)} is not supported; supported are ${[...LOADERS.keys()].join(', ')}`,
    );
  }
  return loader(options);
}
