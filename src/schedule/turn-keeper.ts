/**
 * What the scheduler asks of whoever keeps sessions: one turn for each request, from its submission to its end.
 *
 * Invariants: `end` is called exactly once for every turn that was begun, whatever became of its request; `start` at most
 * once, `contain` at most once and before `end`; the sequence takes over the references in a `TurnStart`.
 */
import type { BoundaryOptions, SequenceStart } from '../generate/boundary.js';
import type { TokenSequence } from '../generate/sequence.js';
import type { RequestSampler } from '../sample/sampler.js';
import type { ContainableFailure } from './job.js';
import type { GenerationRequest, SessionReport } from './request.js';

/** Where a sequence begins, and whom it tells of its states. */
export interface TurnStart extends BoundaryOptions {
  readonly start?: SequenceStart | undefined;
  readonly closingForward?: boolean | undefined;
}

export interface TurnKeeper {
  /** Called by a submission that was not refused by its sampler; what it throws refuses the request. */
  begin(request: GenerationRequest, sampler: RequestSampler): Turn;
}

export interface Turn {
  /** Finds what the prompt can begin with and makes the sequence of it; reading it from a disk takes a while. */
  start(make: (start: TurnStart) => TokenSequence, signal: AbortSignal): TokenSequence | Promise<TokenSequence>;
  /** The consumer of the request hears of the failure when this resolves. Never rejects. */
  contain(failure: ContainableFailure): Promise<void>;
  report(): SessionReport;
  end(): void;
}
