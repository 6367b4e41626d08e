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
  StateCodecs,
  StateIdentity,
} from '../engine/model.js';
import { ENGINE_LAW } from '../engine/engine-law.js';
import type { ActivationLaw } from '../engine/plan/builder.js';
import { GATE_POLICIES, type GatePolicy } from '../engine/plan/phase.js';
import { layoutHash, type StateLayout } from '../engine/state/layout.js';
import type { WeightTable } from '../engine/plan/weight-table.js';
import type { PagedTrunk, Taps } from './paged-trunk.js';

export interface PagedModelOptions {
  readonly family: string;
  readonly id: string;
  readonly laws: FamilyLaws;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly contextLength: number;
  /** What kept states depend on beside the layout; absent: no state is kept beyond its request. */
  readonly identity?: ModelIdentity | undefined;
  readonly weights: WeightTable;
  /** What else to give back on close. */
  readonly release: () => void;
}

/** What a model's states depend on. */
export interface ModelIdentity {
  /** Of the checkpoint's contents. */
  readonly modelHash: string;
  readonly floatLaw: string;
  /** Version of the law by which a gate policy picks lowerings; absent in families without phase-dependent gates. */
  readonly gateLaw?: string | undefined;
  /** Of the draft head's states, where one was loaded. */
  readonly headLayout?: StateLayout | undefined;
}

/** What a forward needs of a family's trunk. */
export type ModelTrunk = Pick<
  PagedTrunk,
  | 'shape'
  | 'store'
  | 'codec'
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
  readonly stateIdentity: StateIdentity | undefined;
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
    this.stateIdentity = options.identity && this.#stateIdentity(options.identity);
    this.#weights = options.weights;
    this.#release = options.release;
  }

  get stateCodecs(): StateCodecs {
    return { trunk: this.trunk.codec };
  }

  #stateIdentity({ modelHash, floatLaw, gateLaw, headLayout }: ModelIdentity): StateIdentity {
    const { family, activationLaw } = this;
    const policyName = (policy: GatePolicy): string => `${gateLaw ?? ''}:${policy}`;
    const trunkLayout = layoutHash(this.trunk.store.layout);
    const gatePolicy = gateLaw === undefined ? undefined : policyName(this.gatePolicy);
    const common = { family, modelHash, activationLaw, floatLaw, engineLaw: ENGINE_LAW, gatePolicy };
    return {
      stamp: (lane) => ({
        ...common,
        lane,
        layoutHash: lane === 'mtp' && headLayout ? `${trunkLayout}+${layoutHash(headLayout)}` : trunkLayout,
        draftHead: lane === 'mtp' && headLayout !== undefined,
      }),
      knownGatePolicies: gateLaw === undefined ? [] : GATE_POLICIES.map(policyName),
    };
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

  /** @param further tokens that the state will hold beside those given. */
  protected checkTokens({ state, tokens }: Pick<ForwardRequest, 'state' | 'tokens'>, further = 0): void {
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

export function isPagedModel(model: LanguageModel): model is PagedModel {
  return model instanceof PagedModel;
}
