/**
 * Where sequences begin and where their states may be kept: the seam between the loops and whoever stores sessions.
 *
 * Invariants: what is handed to `onBoundary` is borrowed, so whoever keeps it retains it; it is handed over only when every
 * part covers the same tokens, and the last one of a turn only when its closing row was checked; nobody's answer depends on
 * whether somebody listens.
 */
import { PlumblineError } from '../errors.js';
import type { SequenceState } from '../engine/model.js';
import type { Capture } from '../sessions/types.js';

/** States that a sequence goes on from. */
export interface SequenceStart {
  readonly trunk: SequenceState;
  /** Of a draft head: one row less than the trunk has tokens. */
  readonly head?: SequenceState | undefined;
  /** Stream of the trunk's last token; with a head. */
  readonly hidden?: Float32Array | undefined;
}

/** A trunk's state alone is a start, too. */
export function startOf(start: SequenceState | SequenceStart): SequenceStart {
  return 'trunk' in start ? start : { trunk: start };
}

/** Throws internal_error for states that do not cover the same beginning of a prompt that goes on behind it. */
export function requireWholeStart(
  { trunk, head, hidden }: SequenceStart,
  options: { readonly promptTokens: readonly number[]; readonly maxTokens: number; readonly head?: object | undefined },
): void {
  const { length } = trunk;
  const missing = options.promptTokens.length - length;
  const needsHead = options.head !== undefined && length > 0;
  const whole = needsHead ? head?.length === length - 1 && hidden !== undefined : (head?.length ?? 0) === 0;
  if (whole && missing >= 1 && options.maxTokens >= 1) return;
  throw new PlumblineError(
    'internal_error',
    `a sequence starts with ${length} tokens and ${head?.length ?? 'no'} rows of a draft head, ${missing} prompt tokens to forward and ${options.maxTokens} to make`,
  );
}

export interface BoundaryOptions {
  /** So many tokens of the prompt will begin the prompts of later turns, too; a chunk ends there. */
  readonly stablePrefix?: number | undefined;
  /** Told of every state that may be kept: behind the chunks of the prompt, and behind the closing forward of the turn. */
  readonly onBoundary?: ((capture: Capture<SequenceState>) => void) | undefined;
}

/** What is kept behind a chunk of a prompt. */
export function promptBoundary(
  { promptTokens, stablePrefix }: BoundaryOptions & { readonly promptTokens: readonly number[] },
  start: SequenceStart,
): Capture<SequenceState> {
  const { length } = start.trunk;
  // One token less than the prompt: all that the same prompt can use when it comes again.
  const kind = length === stablePrefix || length === promptTokens.length - 1 ? 'prompt' : 'chunk';
  return { kind, tokens: Int32Array.from(promptTokens.slice(0, length)), ...start };
}

/** The ids of a whole turn. */
export function tokensOf(promptTokens: readonly number[], completion: readonly number[]): Int32Array {
  const tokens = new Int32Array(promptTokens.length + completion.length);
  tokens.set(promptTokens);
  tokens.set(completion, promptTokens.length);
  return tokens;
}
