/**
 * How a prompt is forwarded: all tokens but the last in chunks without logits, then the last one with its row.
 */
import type { ForwardRequest, SequenceState } from '../engine/model.js';

/** Tokens of a prompt chunk when nobody says; the result does not depend on it. */
export const DEFAULT_PREFILL_CHUNK = 512;

/**
 * The next forward of a prompt of which the state holds the first tokens, but not all.
 * @param chunk most tokens of one forward, at least 1.
 */
export function nextPromptChunk(
  state: SequenceState,
  promptTokens: readonly number[],
  chunk = DEFAULT_PREFILL_CHUNK,
): ForwardRequest {
  const lastIndex = promptTokens.length - 1;
  if (state.length === lastIndex) return { state, tokens: promptTokens.slice(lastIndex), logits: 'last' };
  const end = Math.min(state.length + chunk, lastIndex);
  return { state, tokens: promptTokens.slice(state.length, end), logits: 'none' };
}
