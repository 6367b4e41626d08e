/**
 * What sessions are made of: state values, captures of them, what a capture belongs to, and what came of a restore.
 *
 * Invariants: this room knows states only as values with holders; a capture describes one exact moment, all of its parts
 * cover the same tokens; nothing in it depends on a token that comes later. So a capture of the speculative lane ends
 * with the stream of its last token, and the pair of that stream and the next token is made by whoever goes on.
 */

/** An immutable value of sequence state. */
export interface StateValue {
  /** Tokens, or rows of a draft head. */
  readonly length: number;
  retain(): this;
  release(): void;
  /** The memory that it keeps alive. Equal keys are the same memory, shared by several values. */
  holdings(): readonly Holding[];
}

export interface Holding {
  readonly key: object;
  readonly bytes: number;
}

/** ar: every row made by prefill or one token at a time. mtp: rows may come from verify forwards. */
export type Lane = 'ar' | 'mtp';

export interface SessionEpoch {
  readonly session: string;
  readonly epoch: number;
}

/** Whose forwards made the rows: the own pair last, before it those of what it was restored from, each once. */
export type Lineage = readonly SessionEpoch[];

/** What must be equal for a state to be used again. */
export interface StateStamp {
  readonly family: string;
  readonly modelHash: string;
  readonly activationLaw: string;
  readonly floatLaw: string;
  readonly engineLaw: string;
  readonly layoutHash: string;
  readonly lane: Lane;
  /** Such as `qwen-verify-gate-1:strict`; absent in families without one. */
  readonly gatePolicy?: string | undefined;
  /** Whether captures of the speculative lane carry the state of a draft head. */
  readonly draftHead: boolean;
}

/** chunk: behind a piece of a prompt; prompt: where the prompts of later turns still agree; turn: behind an answer. */
export type CaptureKind = 'chunk' | 'prompt' | 'turn';

export interface Capture<S extends StateValue> {
  readonly kind: CaptureKind;
  /** All n ids. */
  readonly tokens: Int32Array;
  /** The state behind n tokens. */
  readonly trunk: S;
  /** n - 1 rows; in the speculative lane of a model with a draft head. */
  readonly head?: S | undefined;
  /** The stream of the last token; in the speculative lane. */
  readonly hidden?: Float32Array | undefined;
}

export type RestoreReason =
  /** Nothing stored agrees with the beginning of the prompt. */
  | 'no_entry'
  | 'too_short'
  | 'lane_mismatch'
  | 'gate_policy_mismatch'
  | 'stamp_mismatch'
  | 'session_fenced'
  | 'checkpoint_damaged'
  | 'read_failed'
  | 'no_memory'
  | 'bank_off'
  | 'busy';

export type RestoreOutcome<S extends StateValue> =
  | {
      readonly kind: 'restored';
      /** Tokens that need not be computed again. */
      readonly tokens: number;
      readonly from: 'ram' | 'disk';
      readonly capture: Capture<S>;
    }
  | { readonly kind: 'no-match'; readonly reason: RestoreReason }
  | { readonly kind: 'rejected'; readonly reason: RestoreReason };
