/**
 * The fields that chat and completion requests share: model, sampling, limits, stop strings, streaming.
 *
 * A field that is absent stays undefined here; the next default in line (server flag, generation_config.json, family,
 * class) is taken where the request meets the model, never in the schema.
 */
import { z } from 'zod';
import { PlumblineError } from '../../errors.js';
import type { SamplingOptions, SpeculationMode } from '../../schedule/request.js';
import {
  finiteNumber,
  flag,
  integerIn,
  nonEmptyText,
  numberIn,
  oneOf,
  oneOrMany,
  optional,
  probability,
  seed,
  text,
} from './fields.js';

/** Most stop strings of one request. */
export const MAX_STOP_STRINGS = 16;
/** Most alternatives per position that log-probabilities are given for. */
export const MAX_TOP_LOGPROBS = 20;
const MAX_INT32 = 2 ** 31 - 1;

/** The shared part of both schemas; spread it into an object schema. */
export const generationShape = {
  model: nonEmptyText('must be the name of a served model (GET /v1/models lists them)'),
  temperature: optional(numberIn(0, 2)),
  top_p: optional(probability()),
  // What the two may be is for the sampler law of the model (api/sampling-fields.ts).
  top_k: optional(finiteNumber()),
  min_p: optional(finiteNumber()),
  presence_penalty: optional(numberIn(-2, 2)),
  frequency_penalty: optional(numberIn(-2, 2)),
  seed: optional(seed),
  max_tokens: optional(integerIn(1, MAX_INT32, 'must be a positive integer')),
  stop: optional(
    oneOrMany(
      nonEmptyText(),
      MAX_STOP_STRINGS,
      `must be a string or an array of up to ${MAX_STOP_STRINGS} non-empty strings`,
    ),
  ),
  speculation: optional(oneOf('off', 'plain', 'block', 'coupled')),
  stream: optional(flag()),
  stream_options: optional(
    z.looseObject({ include_usage: optional(flag()) }, { error: 'must be an object such as {"include_usage": true}' }),
  ),
  user: optional(text()),
  prompt_cache_key: optional(text()),
} as const;

type GenerationFields = { [Name in keyof typeof generationShape]: z.output<(typeof generationShape)[Name]> };

/** What every generation request says, in plumbline's own terms. */
export interface GenerationParameters {
  readonly model: string;
  readonly sampling: SamplingOptions;
  /** Most tokens to generate; undefined: as many as server and context allow. */
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  /** undefined: no log-probabilities; n: the chosen token and the n most likely ones. */
  readonly topLogprobs: number | undefined;
  /** How to speculate; undefined: as the server does. */
  readonly speculation: SpeculationMode | undefined;
  /** The client's name for the conversation. */
  readonly promptCacheKey: string | undefined;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Fields of the body that nothing reads. */
  readonly ignored: readonly string[];
}

/** @param ignored names of unread fields at every level. Throws when fields contradict each other. */
export function generationParameters(
  fields: GenerationFields,
  topLogprobs: number | undefined,
  maxTokens: number | undefined,
  ignored: readonly string[],
): GenerationParameters {
  const stream = fields.stream ?? false;
  if (!stream && fields.stream_options !== undefined) {
    throw new PlumblineError('invalid_request', '\'stream_options\' is only allowed with "stream": true', {
      param: 'stream_options',
    });
  }
  return {
    model: fields.model,
    sampling: {
      temperature: fields.temperature,
      topP: fields.top_p,
      topK: fields.top_k,
      minP: fields.min_p,
      presencePenalty: fields.presence_penalty,
      frequencyPenalty: fields.frequency_penalty,
      seed: fields.seed,
    },
    maxTokens,
    stop: fields.stop ?? [],
    topLogprobs,
    speculation: fields.speculation,
    promptCacheKey: fields.prompt_cache_key,
    stream,
    includeUsage: fields.stream_options?.include_usage ?? false,
    ignored,
  };
}
