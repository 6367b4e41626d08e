/**
 * What the speculative loop sees of sampling: draft choices, and the acceptance of a verified window.
 *
 * Invariants: draws come from the request's one generator in the documented order: [primary] -> draft choices -> per depth
 * one coin up to and including the first rejection -> one correction or one bonus; a row is checked before anything is
 * drawn from it; only rows that are reached are looked at; a call that raises has emitted and counted nothing.
 */
import type { Distribution } from './laws/mtplx/distribution.js';
import type { RequestSampler, SampledToken } from './sampler.js';
import type { TokenId } from './token-id.js';
import type { RowContext } from './validity.js';

/**
 * plain: accept with probability min(1, p / q), correct from the residual. block: the block-verification law, sampled
 * targets only. coupled: the target's token is drawn as plain decoding would draw it, and a draft is accepted when it is
 * that token; drafts are greedy and draw nothing.
 */
export type AcceptanceLaw = 'plain' | 'block' | 'coupled';

/** A proposed token, and the law it was drawn from. */
export interface DraftChoice {
  readonly tokenId: TokenId | number;
  /** undefined: a point mass (greedy drafts, copied tokens). */
  readonly distribution?: Distribution | undefined;
}

/** Where a token of a round came from. */
export type TokenOrigin = 'primary' | 'accepted_draft' | 'residual_correction' | 'bonus' | 'context_copy';

export interface Window {
  readonly drafts: readonly DraftChoice[];
  /** Logits row i of the verify forward: row 0 decides the first draft, the last row is the bonus row. */
  readonly row: (index: number) => Float32Array;
  /** Tokens that the request may still emit, at least `drafts.length`. */
  readonly room: number;
  readonly stopTokenIds: ReadonlySet<number>;
  /** `context_copy`: drafts copied from the prompt; their acceptance is plain whatever the law. */
  readonly source: 'draft_head' | 'context_copy';
  /** `step` is the index of the first token that the window may emit. */
  readonly context: Omit<RowContext, 'site'>;
}

export interface WindowOutcome {
  /** Drafts accepted, in order; their count is how many window tokens after the primary are kept. */
  readonly accepted: readonly SampledToken[];
  /** The correction or the bonus: emitted, not yet forwarded. */
  readonly next?: { readonly token: SampledToken; readonly origin: 'residual_correction' | 'bonus' } | undefined;
  /**
   * Index of the row that the next primary is to be chosen from, when nothing follows the accepted tokens: a greedy
   * rejection, a stop among the drafts, or no room.
   */
  readonly frontierRow: number;
}

/** A request's sampler that can also speculate. */
export interface SpeculativeSampler extends RequestSampler {
  /** Temperature 0: drafts are greedy and nothing is drawn. */
  readonly greedy: boolean;
  /** Penalties or an overlay change rows, so copied prompt text must not be proposed. */
  readonly penalised: boolean;
  readonly acceptance: AcceptanceLaw;
  /** Each draft is the most likely token of its row, and draws nothing: a head may go on by itself. */
  readonly greedyDrafts: boolean;
  /**
   * One draft from a row of the draft head, unpenalised.
   * @throws NonFiniteLogitsError for an invalid row.
   */
  draft(row: Float32Array, context: RowContext): DraftChoice;
  /**
   * Decides a window. Accepted tokens, correction and bonus count as emitted.
   * @throws NonFiniteLogitsError for the first reached row that is invalid; then nothing was emitted or counted.
   */
  accept(window: Window): WindowOutcome;
}
