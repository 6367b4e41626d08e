/**
 * One request's sampling settings out of everybody's wishes: request, server flag, generation_config.json, family
 * default, default of the sampler law, the first that says something wins, field by field. Which sources count, and what a
 * value may be, is for the rules of the law.
 *
 * Invariants: pure but for the fresh seed, which can be injected; a value is judged where it came from, so the error
 * names the field and its source; a request turns top_p off with 1 (or 0) and top_k off with 0 (or -1).
 */
import { PlumblineError, type ErrorCode } from '../errors.js';
import type { SamplingRules } from './sampling-rules.js';

/** Settings that a source may leave open. */
export interface SamplingWishes {
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  readonly topK?: number | undefined;
  readonly minP?: number | undefined;
  readonly presencePenalty?: number | undefined;
  readonly frequencyPenalty?: number | undefined;
  readonly seed?: bigint | undefined;
}

/** Settings with nothing left open. */
export interface ResolvedSampling {
  /** Finite; at or below 0 means greedy. */
  readonly temperature: number;
  /** Acts for 0 < p < 1. */
  readonly topP: number;
  /** Integer; acts for 0 < k < V. */
  readonly topK: number;
  /** Relative to the best token, in laws that have it; absent: 0. */
  readonly minP?: number | undefined;
  /** In [-2, 2]. */
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** In [0, 2^64). */
  readonly seed: bigint;
}

/** Seeds are below this. */
export const SEED_LIMIT = 1n << 64n;

interface Source {
  readonly name: string;
  readonly code: ErrorCode;
  readonly wishes: SamplingWishes;
}

type NumericField = Exclude<keyof SamplingWishes, 'seed'>;

const WIRE_NAMES: Record<keyof SamplingWishes, string> = {
  temperature: 'temperature',
  topP: 'top_p',
  topK: 'top_k',
  minP: 'min_p',
  presencePenalty: 'presence_penalty',
  frequencyPenalty: 'frequency_penalty',
  seed: 'seed',
};

function refuse(source: Source, field: keyof SamplingWishes, rule: string): never {
  const param = WIRE_NAMES[field];
  throw new PlumblineError(source.code, `${param} of the ${source.name} must be ${rule}`, { param });
}

/** Everybody's wishes for one request. */
export interface SamplingSources {
  readonly request: SamplingWishes;
  readonly serverFlags: SamplingWishes;
  readonly generationConfig: SamplingWishes;
  readonly familyDefaults: SamplingWishes;
  /** Whether the request lets the model think first. */
  readonly thinking?: boolean | undefined;
}

/** Who may say a sampling field of a request, first to last. */
function sourcesOf(wishes: SamplingSources, rules: SamplingRules): readonly Source[] {
  const own = rules.ownDefaultsWhenThinking && wishes.thinking === true;
  return [
    { name: 'request', code: 'invalid_request', wishes: wishes.request },
    { name: 'server flag', code: 'invalid_option', wishes: own ? {} : wishes.serverFlags },
    {
      name: 'generation_config.json',
      code: 'config_invalid',
      wishes: own || !rules.generationConfig ? {} : wishes.generationConfig,
    },
    { name: 'family defaults', code: 'internal_error', wishes: own ? {} : wishes.familyDefaults },
    { name: 'law defaults', code: 'internal_error', wishes: rules.defaults },
  ];
}

/** @throws PlumblineError invalid_request, invalid_option or config_invalid, by the source of the bad value. */
export function resolveSampling(wishes: SamplingSources, rules: SamplingRules): ResolvedSampling {
  const sources = sourcesOf(wishes, rules);
  const numeric = (field: NumericField, integer = false): number => {
    for (const source of sources) {
      const value = source.wishes[field];
      if (value === undefined) continue;
      if (!Number.isFinite(value)) refuse(source, field, 'a finite number');
      if (integer && !Number.isInteger(value)) refuse(source, field, 'an integer');
      if (field === 'temperature' && value > 0 && value < rules.leastTemperature) {
        refuse(source, field, `0 (greedy), or at least ${rules.leastTemperature}`);
      }
      return value;
    }
    throw new PlumblineError('internal_error', `no default for ${WIRE_NAMES[field]}`);
  };
  const clamp = (value: number): number => Math.min(2, Math.max(-2, value));
  return {
    temperature: numeric('temperature'),
    topP: numeric('topP'),
    topK: numeric('topK', rules.topK === 'integer'),
    minP: numeric('minP'),
    presencePenalty: clamp(numeric('presencePenalty')),
    frequencyPenalty: clamp(numeric('frequencyPenalty')),
    seed: seedOf(wishes, rules),
  };
}

/** The first seed that is one, of the request or the server; else a fresh one. */
function seedOf({ request, serverFlags }: SamplingSources, rules: SamplingRules): bigint {
  const sources: readonly Source[] = [
    { name: 'request', code: 'invalid_request', wishes: request },
    { name: 'server flag', code: 'invalid_option', wishes: serverFlags },
  ];
  for (const source of sources) {
    const value = source.wishes.seed;
    if (value === undefined || (value === 0n && rules.seedZero === 'unset')) continue;
    if (value < 0n || value >= SEED_LIMIT) refuse(source, 'seed', 'an integer in [0, 2^64)');
    return value;
  }
  return rules.freshSeed();
}
