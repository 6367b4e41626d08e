/**
 * The fields by which a chat request says how much the model may reason first: `reasoning_effort`, `thinking`, `think`.
 *
 * Invariant: they are judged only for a model whose chat format reads them; for any other they are ignored, and named so.
 */
import { z } from 'zod';
import type { ThinkingWish } from '../../chat/conversation.js';
import { flag, oneOf, optional, parseBody } from './fields.js';

/** As they came. */
export interface ThinkingFields {
  readonly reasoning_effort?: unknown;
  readonly thinking?: unknown;
  readonly think?: unknown;
}

export const THINKING_FIELDS = ['reasoning_effort', 'thinking', 'think'] as const;

const schema = z.object({
  reasoning_effort: optional(oneOf('none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max')),
  thinking: optional(
    z.looseObject(
      { type: oneOf('enabled', 'disabled') },
      { error: 'must be {"type": "enabled"} or {"type": "disabled"}' },
    ),
  ),
  think: optional(flag()),
});

/**
 * @param unasked whether to reason when no field says anything of it; undefined: as the chat format does by itself
 * Throws `invalid_request` with the field at fault.
 */
export function thinkingWish(fields: ThinkingFields, unasked?: boolean): ThinkingWish {
  const { reasoning_effort: effort, thinking, think } = parseBody(schema, fields);
  const asked = thinking === undefined ? think : thinking.type === 'enabled';
  return { enabled: asked ?? (effort === undefined ? unasked : undefined), effort };
}

/** Names of those that say something. */
export function givenThinkingFields(fields: ThinkingFields): string[] {
  return THINKING_FIELDS.filter((name) => fields[name] !== undefined && fields[name] !== null);
}
