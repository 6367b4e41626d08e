/**
 * A loaded model under the `LanguageModel` contract, whatever its family: checked forwards over a paged trunk.
 *
 * Invariants: a forward whose tokens are not all ids of the vocabulary, or pass the context, changes nothing; `close` gives
 * back everything, the weights last.
 */
import { PlumblineError } from '../errors.js';
import type {
  FamilyLaws,
  ForwardOptions,
  ForwardRequest,
  ForwardResult,
  LanguageModel,
  SequenceState,
} from '../engine/model.js';
import type { ActivationLaw } from '../engine/plan/builder.js';
import type { GatePolicy } from '../engine/plan/phase.js';
import type { WeightTable } from '../engine/plan/weight-table.js';
import type { PagedTrunk, Taps } from './paged-trunk.js';

export interface PagedModelOptions {
  readonly family: string;
  readonly id: string;
  readonly laws: FamilyLaws;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly contextLength: number;
  readonly weights: WeightTable;
  /** What else to give back on close. */
  readonly release: () => void;
}

/** What a forward needs of a family's trunk. */
export type ModelTrunk = Pick<
  PagedTrunk,
  | 'shape'
  | 'newState'
  | 'forward'
  | 'forwardWithTaps'
  | 'phaseKey'
  | 'buildPlan'
  | 'weightName'
  | 'stateUsage'
  | 'close'
>;

export class PagedModel<Trunk extends ModelTrunk = ModelTrunk> implements LanguageModel {
  readonly family: string;
  readonly id: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly laws: FamilyLaws;
  readonly activationLaw: string;
  readonly gatePolicy: GatePolicy;
  readonly trunk: Trunk;
  readonly #weights: WeightTable;
  readonly #release: () => void;

  constructor(options: PagedModelOptions, trunk: Trunk) {
    this.family = options.family;
    this.id = options.id;
    this.vocabSize = trunk.shape.vocabSize;
    this.contextLength = options.contextLength;
    this.laws = options.laws;
    this.activationLaw = options.law.name;
    this.gatePolicy = options.gatePolicy;
    this.trunk = trunk;
    this.#weights = options.weights;
    this.#release = options.release;
  }

  newState(): SequenceState {
    return this.trunk.newState();
  }

  async forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]> {
    for (const request of batch) this.checkTokens(request);
    return this.trunk.forward(batch, options);
  }

  /** A forward of one sequence, all rows, that also returns the residual before every layer. For verification. */
  async forwardWithTaps(
    request: Omit<ForwardRequest, 'logits'>,
    options: ForwardOptions,
  ): Promise<{ readonly result: ForwardResult; readonly taps: Taps }> {
    this.checkTokens(request);
    return this.trunk.forwardWithTaps(request, options);
  }

  /** Bytes of sequence states: reserved and in use. */
  stateUsage(): { readonly allocated: number; readonly used: number } {
    return this.trunk.stateUsage();
  }

  async close(): Promise<void> {
    await this.trunk.close();
    this.#weights.free();
    this.#release();
  }

  protected checkTokens({ state, tokens }: Pick<ForwardRequest, 'state' | 'tokens'>): void {
    if (tokens.length === 0) throw new PlumblineError('internal_error', 'a forward was asked for no tokens');
    if (state.length + tokens.length > this.contextLength) {
      throw new PlumblineError(
        'context_length_exceeded',
        `${state.length} + ${tokens.length} tokens pass the context of ${this.contextLength}`,
      );
    }
    for (const token of tokens) {
      if (!Number.isInteger(token) || token < 0 || token >= this.vocabSize) {
        throw new PlumblineError('internal_error', `token id ${token} is outside the vocabulary of ${this.vocabSize}`);
      }
    }
  }
}

export function isPagedModel(model: LanguageModel): model is PagedModel {
  return model instanceof PagedModel;
}
