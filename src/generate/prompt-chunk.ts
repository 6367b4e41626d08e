/**
 * How a prompt is forwarded: all tokens but the last in chunks without logits, then the last one with its row. A chunk also
 * ends where the prompts of later turns stop being the same, so that the state there can be kept.
 */
import type { ForwardRequest, SequenceState } from '../engine/model.js';

/** Tokens of a prompt chunk when nobody says; the result does not depend on it. */
export const DEFAULT_PREFILL_CHUNK = 512;

/**
 * The next forward of a prompt of which the state holds the first tokens, but not all.
 * @param chunk most tokens of one forward, at least 1.
 * @param stablePrefix no chunk passes it.
 */
export function nextPromptChunk(
  state: SequenceState,
  promptTokens: readonly number[],
  chunk = DEFAULT_PREFILL_CHUNK,
  stablePrefix = promptTokens.length,
): ForwardRequest {
  const lastIndex = promptTokens.length - 1;
  if (state.length === lastIndex) return { state, tokens: promptTokens.slice(lastIndex), logits: 'last' };
  const stop = stablePrefix > state.length ? Math.min(stablePrefix, lastIndex) : lastIndex;
  const end = Math.min(state.length + chunk, stop);
  return { state, tokens: promptTokens.slice(state.length, end), logits: 'none' };
}
