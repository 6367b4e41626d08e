/**
 * The stages of a speculative sequence, and the results that they wait for.
 *
 * Invariant: a result of another kind than the stage waits for is given back before anyone hears of it.
 */
import { PlumblineError } from '../errors.js';
import type { ForwardResult, VerifiedWindow } from '../engine/model.js';
import type { DraftChoice } from '../sample/speculation.js';
import type { TokenId } from '../sample/token-id.js';
import { releaseResult, type WorkResult } from './sequence.js';

/** One round: what is proposed behind its primary. */
export interface Round {
  readonly primary: TokenId;
  readonly drafts: DraftChoice[];
  readonly source: 'draft_head' | 'context_copy';
  readonly depth: number;
}

/** What is under way. */
export type Stage =
  | { readonly at: 'prompt' }
  /** Head rows of a prompt chunk: tokens and the streams before them. */
  | { readonly at: 'append-prompt'; readonly tokens: readonly number[]; readonly hidden: readonly Float32Array[] }
  | { readonly at: 'draft'; readonly round: Round; readonly token: number; readonly hidden: Float32Array }
  | { readonly at: 'verify'; readonly round: Round }
  /** So many rows are owed to the head that they go in by themselves. */
  | { readonly at: 'append' }
  /** The turn has ended; a pending token may still be due to be forwarded. */
  | { readonly at: 'closing-append' | 'closing-forward'; readonly last: TokenId }
  | { readonly at: 'ended' };

/** A partly accepted window that the trunk is not committed to yet. */
export interface DueCommit {
  readonly window: VerifiedWindow;
  readonly keep: number;
}

/** The forward's result that a stage waits for. */
export function forwardOf(result: WorkResult): ForwardResult {
  if (result.kind !== 'forward') throw wrongKind(result, 'forward');
  return result.result;
}

/** The draft forward's result that a stage waits for. */
export function draftOf(result: WorkResult): Extract<WorkResult, { kind: 'draft' }>['result'] {
  if (result.kind !== 'draft') throw wrongKind(result, 'draft');
  return result.result;
}

/** The references in a misplaced result are given back before anyone hears of it. */
export function wrongKind(result: WorkResult, wanted: string): PlumblineError {
  releaseResult(result);
  return new PlumblineError(
    'internal_error',
    `a sequence that waits for ${wanted} was given the result of a ${result.kind}`,
  );
}
