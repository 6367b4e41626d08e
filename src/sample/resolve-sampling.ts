/**
 * One request's sampling settings out of everybody's wishes: request, server flag, generation_config.json, family
 * default, class default, the first that says something wins, field by field.
 *
 * Invariants: pure but for the fresh seed, which can be injected; a value is judged where it came from, so the error
 * names the field and its source; a request turns top_p off with 1 (or 0) and top_k off with 0 (or -1).
 */
import { randomInt } from 'node:crypto';
import { PlumblineError, type ErrorCode } from '../errors.js';

/** Settings that a source may leave open. */
export interface SamplingWishes {
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  readonly topK?: number | undefined;
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
  /** In [-2, 2]. */
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** In [0, 2^64). */
  readonly seed: bigint;
}

/** What the sampler of the law uses for a model whose family says nothing. */
export const CLASS_DEFAULTS = {
  temperature: 0.6,
  topP: 0.95,
  topK: 20,
  presencePenalty: 0,
  frequencyPenalty: 0,
} as const satisfies SamplingWishes;

/** Seeds are below this. */
export const SEED_LIMIT = 1n << 64n;

/** A seed for a request that names none: uniform in [0, 2^31 - 1). */
export function freshSeed(): bigint {
  return BigInt(randomInt(2 ** 31 - 1));
}

interface Source {
  readonly name: string;
  readonly code: ErrorCode;
  readonly wishes: SamplingWishes;
}

/** Every float32 logit divided by it is finite in float64, so a client's number cannot make a row look broken. */
const LEAST_TEMPERATURE = 1e-200;

type NumericField = Exclude<keyof SamplingWishes, 'seed'>;

const WIRE_NAMES: Record<keyof SamplingWishes, string> = {
  temperature: 'temperature',
  topP: 'top_p',
  topK: 'top_k',
  presencePenalty: 'presence_penalty',
  frequencyPenalty: 'frequency_penalty',
  seed: 'seed',
};

function refuse(source: Source, field: keyof SamplingWishes, rule: string): never {
  const param = WIRE_NAMES[field];
  throw new PlumblineError(source.code, `${param} of the ${source.name} must be ${rule}`, { param });
}

/**
 * @param fresh makes the seed when nobody names one.
 * @throws PlumblineError invalid_request, invalid_option or config_invalid, by the source of the bad value.
 */
export function resolveSampling(
  request: SamplingWishes,
  serverFlags: SamplingWishes,
  generationConfig: SamplingWishes,
  familyDefaults: SamplingWishes,
  classDefaults: Required<Pick<SamplingWishes, NumericField>> = CLASS_DEFAULTS,
  fresh: () => bigint = freshSeed,
): ResolvedSampling {
  const sources: readonly Source[] = [
    { name: 'request', code: 'invalid_request', wishes: request },
    { name: 'server flag', code: 'invalid_option', wishes: serverFlags },
    { name: 'generation_config.json', code: 'config_invalid', wishes: generationConfig },
    { name: 'family defaults', code: 'internal_error', wishes: familyDefaults },
    { name: 'class defaults', code: 'internal_error', wishes: classDefaults },
  ];

  const numeric = (field: NumericField, integer = false): number => {
    for (const source of sources) {
      const value = source.wishes[field];
      if (value === undefined) continue;
      if (!Number.isFinite(value)) refuse(source, field, 'a finite number');
      if (integer && !Number.isInteger(value)) refuse(source, field, 'an integer');
      if (field === 'temperature' && value > 0 && value < LEAST_TEMPERATURE) {
        refuse(source, field, `0 (greedy), or at least ${LEAST_TEMPERATURE}`);
      }
      return value;
    }
    throw new PlumblineError('internal_error', `no default for ${WIRE_NAMES[field]}`);
  };

  const seed = (): bigint => {
    for (const source of sources.slice(0, 2)) {
      const value = source.wishes.seed;
      if (value === undefined) continue;
      if (value < 0n || value >= SEED_LIMIT) refuse(source, 'seed', 'an integer in [0, 2^64)');
      return value;
    }
    return fresh();
  };

  const clamp = (value: number): number => Math.min(2, Math.max(-2, value));
  return {
    temperature: numeric('temperature'),
    topP: numeric('topP'),
    topK: numeric('topK', true),
    presencePenalty: clamp(numeric('presencePenalty')),
    frequencyPenalty: clamp(numeric('frequencyPenalty')),
    seed: seed(),
  };
}
