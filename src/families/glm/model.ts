/**
 * A loaded GLM model: a paged trunk without speculation.
 */
import type { Backend } from '../../engine/backends/backend.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import type { GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { stateLimits, type KeptStates } from '../../engine/state/sequence-state.js';
import { PagedModel } from '../paged-model.js';
import { PagedTrunk } from '../paged-trunk.js';
import type { BoundGlm } from './bind.js';
import type { GlmConfig } from './config-types.js';
import { GLM_LAWS, GLM_LOWERING } from './laws.js';
import { buildGlmPlan } from './plan-builder.js';
import { glmStateLayout } from './state-layout.js';

export interface GlmModelOptions {
  readonly id: string;
  readonly config: GlmConfig;
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly bound: BoundGlm;
  readonly weights: WeightTable;
  /** Of the checkpoint's contents; absent: no state is kept beyond its request. */
  readonly modelHash?: string | undefined;
  readonly contextLength: number;
  /** Most rows of one plan. */
  readonly maxRows: number;
  /** Most sequences that hold a state at a time. */
  readonly sequences: number;
  /** Workspace of the largest plan. */
  readonly workspaceWords: number;
  /** For states that are kept for later turns. */
  readonly kept: KeptStates;
  /** What else to give back on close. */
  readonly release: () => void;
}

/** Values of a state that a sequence holds at most: before a forward and behind it. */
export const GLM_STATE_VALUES = 2;

export class GlmModel extends PagedModel<PagedTrunk> {
  readonly config: GlmConfig;

  constructor(options: GlmModelOptions) {
    const { config, backend, law, bound, weights, modelHash, sequences, contextLength } = options;
    const state = glmStateLayout(config, law);
    const { layout } = state;
    const plan = { law, pageTokens: layout.pageTokens, standaloneTable: -1, fusedTable: -1 };
    const trunk = new PagedTrunk({
      ...options,
      layout,
      limits: stateLimits(layout, sequences, contextLength, GLM_STATE_VALUES, options.kept),
      shape: {
        vocabSize: config.vocabSize,
        hiddenSize: config.hiddenSize,
        hiddenWidth: config.hyperConnections.streams * config.hiddenSize,
        layerCount: config.layerCount,
      },
      lowering: () => GLM_LOWERING,
      build: ({ rowCapacity, outCapacity, taps }) =>
        buildGlmPlan({ config, bound, state, plan: { ...plan, rowCapacity, outCapacity }, taps }, weights),
    });
    const identity = modelHash === undefined ? undefined : { modelHash, floatLaw: backend.floatLaw };
    super({ ...options, family: config.family, laws: GLM_LAWS, identity }, trunk);
    this.config = config;
  }
}
