/**
 * The life of a request: queued, prefilling, decoding, then exactly one of finished, failed, cancelled.
 *
 * Invariant: every change goes through `transition`, which allows the moves of the table and no other; nothing leaves a
 * final state.
 */
import { PlumblineError } from '../errors.js';
import type { FinishReason } from './request.js';

export type RequestState =
  | { readonly phase: 'queued' }
  | { readonly phase: 'prefilling'; /** Clock reading, ms. */ readonly startedAt: number }
  | { readonly phase: 'decoding'; readonly startedAt: number; readonly firstTokenAt: number }
  | { readonly phase: 'finished'; readonly reason: FinishReason }
  | { readonly phase: 'failed'; readonly error: PlumblineError }
  | { readonly phase: 'cancelled'; readonly during: 'queued' | 'prefilling' | 'decoding' };

export type RequestPhase = RequestState['phase'];

const MOVES: Readonly<Record<RequestPhase, readonly RequestPhase[]>> = {
  queued: ['prefilling', 'failed', 'cancelled'],
  prefilling: ['decoding', 'failed', 'cancelled'],
  decoding: ['finished', 'failed', 'cancelled'],
  finished: [],
  failed: [],
  cancelled: [],
};

/** The new state. Throws `internal_error` for a move that the table does not have. */
export function transition(from: RequestState, to: RequestState): RequestState {
  if (MOVES[from.phase].includes(to.phase)) return to;
  throw new PlumblineError('internal_error', `a ${from.phase} request cannot become ${to.phase}`);
}

/** Whether nothing more happens to a request in this state. */
export function isFinal(
  state: RequestState,
): state is Extract<RequestState, { phase: 'finished' | 'failed' | 'cancelled' }> {
  return MOVES[state.phase].length === 0;
}
