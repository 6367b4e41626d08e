/**
 * A loaded Qwen model under the `LanguageModel` contract: the trunk, and the draft head where there is one.
 */
import { PlumblineError } from '../../errors.js';
import type { Backend } from '../../engine/backends/backend.js';
import type {
  FamilyLaws,
  ForwardOptions,
  ForwardRequest,
  ForwardResult,
  LanguageModel,
  SequenceState,
  Speculation,
} from '../../engine/model.js';
import type { ActivationLaw, Plan } from '../../engine/plan/builder.js';
import type { GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { stateLimits } from '../../engine/state/sequence-state.js';
import type { BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { DraftHead, MOST_LINKS } from './draft-head.js';
import { qwenLaws } from './laws.js';
import { draftStateLayout, qwenStateLayout } from './state-layout.js';
import { MAX_WINDOW, QwenTrunk, type PleTable, type Taps } from './trunk.js';

export interface QwenModelOptions {
  readonly id: string;
  readonly config: QwenConfig;
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly bound: BoundQwen;
  readonly weights: WeightTable;
  readonly pleTables: readonly PleTable[];
  readonly contextLength: number;
  /** Most rows of one plan. */
  readonly maxRows: number;
  /** Most sequences that hold a state at a time. */
  readonly sequences: number;
  /** Workspace of the largest plan. */
  readonly workspaceWords: number;
  /** What else to give back on close. */
  readonly release: () => void;
}

/** Values of a trunk state that a sequence holds at most: before a window, behind it, and behind its kept tokens. */
export const TRUNK_VALUES = 3;
/** Of a head state: committed, behind the primary, behind the newest draft, and those of a chain in the making. */
const HEAD_VALUES = 3 + MOST_LINKS;

export class QwenModel implements LanguageModel {
  readonly family: string;
  readonly id: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly laws: FamilyLaws;
  readonly activationLaw: string;
  readonly gatePolicy: GatePolicy;
  readonly config: QwenConfig;
  readonly trunk: QwenTrunk;
  readonly speculation: Speculation;
  readonly #draftHead: DraftHead | undefined;
  readonly #o: QwenModelOptions;

  constructor(options: QwenModelOptions) {
    const { config, backend, law, gatePolicy, bound, weights, maxRows, sequences, contextLength } = options;
    this.#o = options;
    this.family = config.family;
    this.id = options.id;
    this.vocabSize = config.vocabSize;
    this.contextLength = contextLength;
    this.laws = qwenLaws(config.family);
    this.activationLaw = law.name;
    this.gatePolicy = gatePolicy;
    this.config = config;
    const state = qwenStateLayout(config, law);
    const plan = {
      law,
      pageTokens: state.layout.pageTokens,
      standaloneTable: bound.standaloneTable,
      fusedTable: bound.fusedTable,
    };
    this.trunk = new QwenTrunk({
      config,
      backend,
      law,
      gatePolicy,
      bound,
      weights,
      pleTables: options.pleTables,
      state,
      limits: stateLimits(state.layout, sequences, contextLength, TRUNK_VALUES),
      plan,
      maxRows,
      workspaceWords: options.workspaceWords,
    });
    if (config.family === 'qwen4_exp' && bound.mtp) {
      const { layout, head } = draftStateLayout(config, law);
      this.#draftHead = new DraftHead({
        config,
        backend,
        bound,
        weights,
        trunkState: state,
        layout,
        head,
        limits: stateLimits(layout, sequences, contextLength, HEAD_VALUES),
        maxRows,
        plan,
        key: { gatePolicy, law: law.name, floatLaw: backend.floatLaw },
      });
    }
    this.speculation = this.#speculation();
  }

  newState(): SequenceState {
    return this.trunk.newState();
  }

  async forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]> {
    for (const { state, tokens } of batch) this.#checkTokens(state, tokens);
    return this.trunk.forward(batch, options);
  }

  /** A forward of one sequence, all rows, that also returns the residual before every layer. For verification. */
  async forwardWithTaps(
    request: Omit<ForwardRequest, 'logits'>,
    options: ForwardOptions,
  ): Promise<{ readonly result: ForwardResult; readonly taps: Taps }> {
    this.#checkTokens(request.state, request.tokens);
    return this.trunk.forwardWithTaps(request, options);
  }

  /** The draft head's plans of one row, for printing and for tests; none without a head. */
  draftPlans(): Plan[] {
    return this.#draftHead?.plans() ?? [];
  }

  /** Bytes of sequence states, trunk and head: reserved and in use. */
  stateUsage(): { readonly allocated: number; readonly used: number } {
    const trunk = this.trunk.stateUsage();
    const head = this.#draftHead?.stateUsage() ?? { allocated: 0, used: 0 };
    return { allocated: trunk.allocated + head.allocated, used: trunk.used + head.used };
  }

  async close(): Promise<void> {
    await this.#draftHead?.close();
    await this.trunk.close();
    this.#o.weights.free();
    this.#o.release();
  }

  #speculation(): Speculation {
    const head = this.#draftHead;
    return {
      maxWindow: MAX_WINDOW,
      commit: (batch, { signal }) => this.trunk.commit(batch, signal),
      head: head && {
        hiddenWidth: this.trunk.hiddenWidth,
        newState: () => head.newState(),
        forward: async (batch, { signal }) => {
          for (const { state, tokens, drafts = 1 } of batch) this.#checkTokens(state, tokens, drafts - 1);
          return head.forward(batch, signal);
        },
      },
    };
  }

  #checkTokens(state: SequenceState, tokens: readonly number[] | Int32Array, further = 0): void {
    if (tokens.length === 0) throw new PlumblineError('internal_error', 'a forward was asked for no tokens');
    if (state.length + tokens.length + further > this.contextLength) {
      throw new PlumblineError(
        'context_length_exceeded',
        `${state.length} + ${tokens.length + further} tokens pass the context of ${this.contextLength}`,
      );
    }
    for (const token of tokens) {
      if (!Number.isInteger(token) || token < 0 || token >= this.vocabSize) {
        throw new PlumblineError('internal_error', `token id ${token} is outside the vocabulary of ${this.vocabSize}`);
      }
    }
  }
}
