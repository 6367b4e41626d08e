/**
 * A loaded Qwen model: the trunk, its windows, and the draft head where there is one.
 */
import type { Backend } from '../../engine/backends/backend.js';
import type { Speculation, StateCodecs } from '../../engine/model.js';
import type { ActivationLaw, Plan } from '../../engine/plan/builder.js';
import type { GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { stateLimits, type KeptStates } from '../../engine/state/sequence-state.js';
import { PagedModel } from '../paged-model.js';
import type { BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { DraftHead, MOST_LINKS } from './draft-head.js';
import { GATE_LAW, qwenLaws } from './laws.js';
import { draftStateLayout, qwenStateLayout } from './state-layout.js';
import { MAX_WINDOW, QwenTrunk, type PleTable } from './trunk.js';

export interface QwenModelOptions {
  readonly id: string;
  readonly config: QwenConfig;
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly bound: BoundQwen;
  readonly weights: WeightTable;
  /** Of the checkpoint's contents; absent: no state is kept beyond its request. */
  readonly modelHash?: string | undefined;
  readonly pleTables: readonly PleTable[];
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

/** Values of a trunk state that a sequence holds at most: before a window, behind it, and behind its kept tokens. */
export const TRUNK_VALUES = 3;
/** Of a head state: committed, behind the primary, behind the newest draft, and those of a chain in the making. */
const HEAD_VALUES = 3 + MOST_LINKS;

export class QwenModel extends PagedModel<QwenTrunk> {
  readonly config: QwenConfig;
  readonly speculation: Speculation;
  readonly #draftHead: DraftHead | undefined;

  constructor(options: QwenModelOptions) {
    const { config, backend, law, gatePolicy, bound, weights, maxRows, sequences, contextLength } = options;
    const state = qwenStateLayout(config, law);
    const plan = {
      law,
      pageTokens: state.layout.pageTokens,
      standaloneTable: bound.standaloneTable,
      fusedTable: bound.fusedTable,
    };
    const trunk = new QwenTrunk({
      ...options,
      state,
      limits: stateLimits(state.layout, sequences, contextLength, TRUNK_VALUES, options.kept),
      plan,
    });
    const draft = config.family === 'qwen4_exp' && bound.mtp ? draftStateLayout(config, law) : undefined;
    const { modelHash } = options;
    const identity = modelHash === undefined ? undefined : { modelHash, gateLaw: GATE_LAW, headLayout: draft?.layout };
    super(
      {
        ...options,
        family: config.family,
        laws: qwenLaws(config.family),
        identity: identity && { ...identity, floatLaw: backend.floatLaw },
      },
      trunk,
    );
    this.config = config;
    if (config.family === 'qwen4_exp' && draft) {
      const { layout, head } = draft;
      this.#draftHead = new DraftHead({
        config,
        backend,
        bound,
        weights,
        trunkState: state,
        layout,
        head,
        limits: stateLimits(layout, sequences, contextLength, HEAD_VALUES, options.kept),
        maxRows,
        plan,
        key: { gatePolicy, law: law.name, floatLaw: backend.floatLaw },
      });
    }
    this.speculation = this.#speculation();
  }

  override get stateCodecs(): StateCodecs {
    return { trunk: this.trunk.codec, head: this.#draftHead?.codec };
  }

  /** The draft head's plans of one row, for printing and for tests; none without a head. */
  draftPlans(): Plan[] {
    return this.#draftHead?.plans() ?? [];
  }

  /** Bytes of sequence states, trunk and head: reserved and in use. */
  override stateUsage(): { readonly allocated: number; readonly used: number } {
    const trunk = super.stateUsage();
    const head = this.#draftHead?.stateUsage() ?? { allocated: 0, used: 0 };
    return { allocated: trunk.allocated + head.allocated, used: trunk.used + head.used };
  }

  override async close(): Promise<void> {
    await this.#draftHead?.close();
    await super.close();
  }

  #speculation(): Speculation {
    const head = this.#draftHead;
    return {
      maxWindow: MAX_WINDOW,
      commit: (batch, { signal }) => this.trunk.commit(batch, signal),
      head: head && {
        hiddenWidth: this.trunk.shape.hiddenWidth,
        newState: () => head.newState(),
        forward: async (batch, { signal }) => {
          for (const { state, tokens, drafts = 1 } of batch) this.checkTokens({ state, tokens }, drafts - 1);
          return head.forward(batch, signal);
        },
      },
    };
  }
}
