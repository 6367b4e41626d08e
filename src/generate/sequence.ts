/**
 * What the scheduler sees of a running sequence, whichever loop it follows: the piece of work it needs next, and what a
 * finished piece brought.
 *
 * Invariants: asking for the work twice gives the same; `take` is given the result of the current work and takes over the
 * references in it; `release` gives back every reference, once, on every path.
 */
import type {
  CommitRequest,
  DraftRequest,
  DraftResult,
  ForwardRequest,
  ForwardResult,
  SequenceState,
} from '../engine/model.js';
import type { Phase } from '../engine/plan/phase.js';
import type { SampledToken } from '../sample/sampler.js';
import type { AcceptanceLaw, TokenOrigin } from '../sample/speculation.js';

/**
 * A forward of the trunk, a forward of the draft head, or a commit of a partly accepted window. A draft may bring along the
 * commit of the round before: neither needs the other, so they run together.
 */
export type Work =
  | { readonly kind: 'forward'; readonly request: ForwardRequest; readonly phase: Phase }
  | { readonly kind: 'draft'; readonly request: DraftRequest; readonly commit?: CommitRequest | undefined }
  | { readonly kind: 'commit'; readonly request: CommitRequest };

export type WorkResult =
  | { readonly kind: 'forward'; readonly result: ForwardResult }
  | { readonly kind: 'draft'; readonly result: DraftResult; readonly committed?: SequenceState | undefined }
  | { readonly kind: 'commit'; readonly state: SequenceState };

/** stop-token: the token is one of the stop ids; length: it is the last that was allowed. */
export type TurnEnd = 'stop-token' | 'length';

/** Whether the turn ends with the newest of its tokens. */
export function turnEnd(
  completion: readonly number[],
  stops: ReadonlySet<number>,
  maxTokens: number,
): TurnEnd | undefined {
  if (stops.has(completion.at(-1) ?? -1)) return 'stop-token';
  return completion.length === maxTokens ? 'length' : undefined;
}

/** What a piece of work brought. */
export type Step =
  /** `processed` of `total` prompt tokens are forwarded. */
  | { readonly kind: 'prompt'; readonly processed: number; readonly total: number }
  /** A new token; with `end` the last one. */
  | {
      readonly kind: 'token';
      readonly token: SampledToken;
      /** Where a speculative round took it from; absent in plain decoding. */
      readonly origin?: TokenOrigin | undefined;
      readonly end?: TurnEnd | undefined;
    }
  /** The closing forward: the state covers every token. */
  | { readonly kind: 'closed' };

/** Gives back the references in a result that nobody takes. */
export function releaseResult(result: WorkResult): void {
  if (result.kind === 'commit') result.state.release();
  else result.result.state.release();
  if (result.kind !== 'draft') return;
  for (const { state } of result.result.further ?? []) state.release();
  result.committed?.release();
}

export interface TokenSequence {
  /** The next piece of work, or undefined when there is nothing more to do. */
  readonly work: Work | undefined;
  /**
   * @returns the steps that the piece brought, in order; none when it was a piece in between.
   * @throws NonFiniteLogitsError for an invalid row: no token was made, and the sequence can only be released.
   */
  take(result: WorkResult): readonly Step[];
  /** Ends the turn behind the newest token: a stop string, or a caller that needs no more. */
  stop(): void;
  /** Gives every reference back. May be called at any time but while work of this sequence runs, and again. */
  release(): void;
  /** Prompt tokens whose state was there from the start. */
  readonly cachedTokens: number;
  /** What speculation did so far, or why it was declined; absent when nobody asked for it. */
  readonly speculation?: SpeculationReport | undefined;
}

/** What a request's speculation did, or why there was none. */
export type SpeculationReport = { readonly mode: 'off'; readonly reason: string } | SpeculationStats;

/** Counts of a request's speculative rounds. */
export interface SpeculationStats {
  readonly mode: AcceptanceLaw;
  /** Name of the depth policy, and its greatest depth. */
  readonly depthPolicy: string;
  readonly maxDepth: number;
  /** Verify forwards. */
  readonly rounds: number;
  /** Rounds without a draft, by the reason of the depth policy. */
  readonly skipped: Readonly<Record<string, number>>;
  /** Per depth, from 1: drafts that were decided, and those accepted. */
  readonly offered: readonly number[];
  readonly accepted: readonly number[];
  readonly copyRounds: number;
  readonly copyOffered: number;
  readonly copyAccepted: number;
  /** Partly accepted windows whose state was committed by replay. */
  readonly commits: number;
}
