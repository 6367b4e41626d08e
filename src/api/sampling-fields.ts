/**
 * The sampling fields of a request against the rules of the model's sampler law.
 *
 * Invariant: a field that would change the answer and that the law does not have is an error, never dropped.
 */
import { PlumblineError } from '../errors.js';
import type { SamplingRules } from '../sample/sampling-rules.js';
import type { SamplingOptions } from '../schedule/request.js';

const MAX_INT32 = 2 ** 31 - 1;

/** Throws `invalid_request` and `unsupported_parameter`, with the field at fault. */
export function settleSampling(given: SamplingOptions, rules: SamplingRules): SamplingOptions {
  requireNeutral('min_p', given.minP, rules.minP, 'must be 0: the sampler of this model has no such step');
  for (const [field, value] of [
    ['presence_penalty', given.presencePenalty],
    ['frequency_penalty', given.frequencyPenalty],
  ] as const) {
    requireNeutral(field, value, rules.penalties, 'must be 0: the sampler of this model has no penalties');
  }
  return { ...given, topK: topK(given.topK, rules) };
}

function requireNeutral(param: string, value: number | undefined, known: boolean, hint: string): void {
  if (known || value === undefined || value === 0) return;
  throw new PlumblineError('unsupported_parameter', `'${param}' ${hint}`, { param });
}

function topK(value: number | undefined, rules: SamplingRules): number | undefined {
  if (value === undefined) return undefined;
  if (rules.topK === 'truncated') return Math.max(0, Math.min(Math.trunc(value), MAX_INT32));
  if (Number.isInteger(value) && value >= 0 && value <= MAX_INT32) return value;
  throw new PlumblineError('invalid_request', "'top_k' must be a non-negative integer (0 switches it off)", {
    param: 'top_k',
  });
}
