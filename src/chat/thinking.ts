/**
 * How much the model reasons before an answer, out of what the request says.
 *
 * Invariants: reasoning is on unless something says no; the greatest effort needs a context that holds it and is taken for
 * the ordinary one elsewhere, as the law says; everything between it and none is the ordinary one.
 */
import type { Conversation } from './conversation.js';
import type { ThinkingMode } from './dialects/dialect.js';

/** Tokens of context from which on the greatest effort is taken. */
export const CONTEXT_FOR_MAX = 393_216;

export function thinkingMode({ thinking = {}, templateArguments }: Conversation, context = 0): ThinkingMode {
  const { enabled = templateArguments['enable_thinking'] !== false, effort = 'high' } = thinking;
  if (!enabled || effort === 'none') return 'off';
  return effort === 'max' && context >= CONTEXT_FOR_MAX ? 'max' : 'high';
}
