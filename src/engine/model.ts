/**
 * What the rooms above the engine see of a loaded model: values of sequence state and a forward that makes new ones.
 *
 * Invariants: a state is an immutable value; `forward` never changes the states it is given; rows are computed the same
 * way alone, in a chunk, or beside other sequences. States are reference-counted: whoever holds one releases it once.
 */
import type { Holding, Lane, StateStamp } from '../sessions/types.js';
import type { StateCodec } from '../sessions/checkpoints/codec.js';
import type { Phase } from './plan/phase.js';

/** An immutable value of everything a sequence needs to go on; see engine/state/. */
export interface SequenceState {
  /** Tokens already forwarded. */
  readonly length: number;
  /** Bytes of backend memory that this value keeps alive (shared pages counted once a value). */
  readonly bytes: number;
  /** One more holder of this value. Returns the same value. */
  retain(): this;
  /** One holder less; at zero its memory goes back to the pool. Using it afterwards is a programming error. */
  release(): void;
  /** The memory that this value keeps alive; equal keys are the same memory. */
  holdings(): readonly Holding[];
}

export interface ForwardRequest {
  readonly state: SequenceState;
  /** Ids to forward after the state's tokens, at least one, each in [0, vocabSize). */
  readonly tokens: readonly number[] | Int32Array;
  /** Which rows' logits to return. */
  readonly logits: RowChoice;
  /** Which rows' hidden streams (the residual before the final mixer or norm) to return; default none. */
  readonly hidden?: RowChoice | undefined;
  /** Whether `commit` may later cut this forward back to fewer tokens; default false. At most `maxWindow` tokens then. */
  readonly revocable?: boolean | undefined;
}

export type RowChoice = 'none' | 'last' | 'all';

export interface ForwardResult {
  /** The new value: length = old length + tokens. The caller owns one reference. */
  readonly state: SequenceState;
  /** One Float32Array of [vocabSize] for each requested row, in token order; the caller owns them. */
  readonly logits: readonly Float32Array[];
  /** One Float32Array of [hiddenWidth] for each row asked for; absent when none was. */
  readonly hidden?: readonly Float32Array[] | undefined;
  /** Given when the request was revocable. */
  readonly window?: VerifiedWindow | undefined;
}

/** A revocable forward: its result can be cut back to its first tokens. Opaque outside the engine. */
export interface VerifiedWindow {
  /** Tokens of the forward. */
  readonly tokens: number;
}

export interface ForwardOptions {
  readonly phase: Phase;
  /** Aborting stops within one op of the running plan; the promise rejects with `request_cancelled`, no state is made. */
  readonly signal?: AbortSignal | undefined;
}

/** Sampling defaults and laws that a family hands to the upper rooms as data. */
export interface FamilyLaws {
  /** Which sampler law of sample/laws/ decides ids: Qwen `mtplx`, DeepSeek and GLM `ds4`. */
  readonly sampler: 'mtplx' | 'ds4';
  /** The family's own sampling defaults, below request, server flag and generation_config.json. */
  readonly samplingDefaults: {
    readonly temperature: number;
    readonly topP: number;
    readonly topK: number;
    /** Only laws that have such a filter read it; absent: the default of the law. */
    readonly minP?: number | undefined;
  };
  /** Which chat dialect of chat/dialects/ its models speak; absent: what their own template writes. */
  readonly chat?: 'dsml' | 'argument-pairs' | undefined;
  /** What an invalid row of logits does: raise (Qwen) or fall back silently as DS4 does. */
  readonly invalidRow: 'raise' | 'ds4-fallback';
  /** Names by which requests may ask for the model besides its own, and whether it reasons first then. */
  readonly modelAliases?: readonly { readonly name: string; readonly thinking: boolean }[] | undefined;
  /** What a kept state is known by: its tokens alone, or also the text that they stand for. */
  readonly prefixKey: 'tokens' | 'text';
}

/** What speculation needs beyond plain forwards. */
export interface Speculation {
  /** Most tokens of a revocable forward. */
  readonly maxWindow: number;
  /**
   * The states after the kept tokens of revocable forwards: byte for byte what a forward of those tokens alone, in the
   * same phase, would have left. The states given in stay the caller's. Rejects as `forward` does.
   */
  commit(
    batch: readonly CommitRequest[],
    options: { readonly signal?: AbortSignal | undefined },
  ): Promise<SequenceState[]>;
  /** Present when the checkpoint has a draft head and it was loaded. */
  readonly head?: DraftHead | undefined;
}

/** The draft head: a short forward of its own, with its own state, outside every decode phase. */
export interface DraftHead {
  /** Elements of a hidden row. */
  readonly hiddenWidth: number;
  /** The empty state. Row t of a state pairs the hidden stream of token t with token t + 1. */
  newState(): SequenceState;
  /** One forward over one or more sequences, all with the same `output`. Rejects as `LanguageModel.forward` does. */
  forward(
    batch: readonly DraftRequest[],
    options: { readonly signal?: AbortSignal | undefined },
  ): Promise<DraftResult[]>;
}

export interface DraftRequest {
  readonly state: SequenceState;
  /** The tokens after those whose hidden streams are given: n ids. */
  readonly tokens: readonly number[] | Int32Array;
  /** n rows of [hiddenWidth]. */
  readonly hidden: readonly Float32Array[];
  /** `none`: the rows are only appended to the head's cache. `last`: logits and hidden of the last row. */
  readonly output: 'none' | 'last';
  /**
   * With `last`: rows wanted in all, default 1. Each further one comes from the most likely token of the row before it
   * (the lowest id of equals) and the head's own stream, as if they had been asked for one by one.
   */
  readonly drafts?: number | undefined;
}

export interface DraftResult {
  readonly state: SequenceState;
  readonly logits?: Float32Array | undefined;
  /** The head's own stream before its mixer: what the next recursion step takes. */
  readonly hidden?: Float32Array | undefined;
  /** The further rows, in order; there may be fewer than were wanted. */
  readonly further?: readonly DraftStep[] | undefined;
}

/** A row that the head went on to by itself. */
export interface DraftStep {
  /** The token that was appended: the most likely one of the row before. */
  readonly token: number;
  /** The value behind it. The caller owns one reference. */
  readonly state: SequenceState;
  readonly logits: Float32Array;
  readonly hidden: Float32Array;
}

export interface StateCodecs {
  readonly trunk: StateCodec<SequenceState>;
  /** Of the draft head's states, where one was loaded. */
  readonly head?: StateCodec<SequenceState> | undefined;
}

/** What states depend on, for whoever keeps them beyond their request. */
export interface StateIdentity {
  stamp(lane: Lane): StateStamp;
  /** Gate policies whose plain rows are known to be the same. */
  readonly knownGatePolicies: readonly string[];
}

export interface CommitRequest {
  /** The state that the revocable forward started from. */
  readonly before: SequenceState;
  /** The state that it made. */
  readonly after: SequenceState;
  readonly window: VerifiedWindow;
  /** Tokens of the window to keep: 1 … window.tokens - 1. */
  readonly keep: number;
}

export interface LanguageModel {
  /** config.json model_type without `_text`: `qwen4_exp`, `qwen3_5`, … */
  readonly family: string;
  /** Name under which it is served. */
  readonly id: string;
  readonly vocabSize: number;
  /** Most tokens a sequence may hold here (config limit, flag, memory plan). */
  readonly contextLength: number;
  readonly laws: FamilyLaws;
  /** The activation law by name: `f32`, `bf16`, `bf16-mtplx`. */
  readonly activationLaw: string;
  /** The empty state. */
  newState(): SequenceState;
  /** One forward over one or more sequences. Rejects with a PlumblineError; then no new state exists. */
  forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]>;
  /** How states are written down and read in again; absent in models whose states only live in memory. */
  readonly stateCodecs?: StateCodecs | undefined;
  /** Absent: no state may be kept beyond its request. */
  readonly stateIdentity?: StateIdentity | undefined;
  /** Absent in models that cannot take a forward back. */
  readonly speculation?: Speculation | undefined;
  close(): Promise<void>;
}
