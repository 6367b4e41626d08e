/**
 * The body of POST /v1/completions (the older form: a text or token prompt, no messages) and what it means.
 *
 * Invariant: one prompt a request; a batch of prompts is an error, not a partial answer.
 */
import { z } from 'zod';
import { integerIn, optional, parseBody, UNSUPPORTED } from './fields.js';
import {
  generationParameters,
  generationShape,
  MAX_TOP_LOGPROBS,
  type GenerationParameters,
} from './generation-fields.js';
import { NEUTRAL_FIELD_NAMES, requireNeutralFields, unreadFields } from './neutral-fields.js';

export type CompletionPrompt =
  { readonly kind: 'text'; readonly text: string } | { readonly kind: 'tokens'; readonly ids: readonly number[] };

export interface CompletionRequest extends GenerationParameters {
  readonly prompt: CompletionPrompt;
}

const PROMPT_RULE = 'must be a string, an array of one string, or an array of token ids';

/** Accepts text, `[text]`, `[id, …]` and `[[id, …]]`. */
const prompt = z.unknown().transform((given, context): CompletionPrompt => {
  const fail = (message: string, unsupported = false): never => {
    context.addIssue({ code: 'custom', message, ...(unsupported ? { params: UNSUPPORTED } : {}) });
    return z.NEVER;
  };
  if (given === undefined) return fail(`is required and ${PROMPT_RULE}`);
  if (typeof given === 'string') return { kind: 'text', text: given };
  if (!Array.isArray(given)) return fail(PROMPT_RULE);
  if (given.length === 0) return fail('must not be empty');
  const items: readonly unknown[] = given;
  const isBatch = items.every((item) => typeof item === 'string' || Array.isArray(item));
  if (isBatch && items.length > 1) return fail('holds several prompts: send one a request', true);
  const only = isBatch ? items[0] : items;
  if (typeof only === 'string') return { kind: 'text', text: only };
  const ids = only as readonly unknown[];
  if (ids.length === 0) return fail('must not be empty');
  return ids.every(isTokenId) ? { kind: 'tokens', ids } : fail(PROMPT_RULE);
});

/** The upper end is the model's and is checked where the model is known. */
const isTokenId = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const shape = {
  ...generationShape,
  prompt,
  logprobs: optional(integerIn(0, MAX_TOP_LOGPROBS)),
};

const schema = z.looseObject(shape);
const KNOWN_FIELDS: ReadonlySet<string> = new Set([...Object.keys(shape), ...NEUTRAL_FIELD_NAMES]);

/** Throws a PlumblineError with the field at fault. */
export function parseCompletionRequest(body: unknown): CompletionRequest {
  const fields = parseBody(schema, body);
  requireNeutralFields(fields);
  const ignored = [
    ...unreadFields(fields, KNOWN_FIELDS),
    ...unreadFields(fields.stream_options ?? {}, new Set(['include_usage']), 'stream_options.'),
  ];
  return { ...generationParameters(fields, fields.logprobs, fields.max_tokens, ignored), prompt: fields.prompt };
}
