/**
 * Which loop a request follows: plain decoding, or speculation where it was asked for and the model can.
 *
 * Invariant: a request that asked for speculation and does not get it carries the reason in its report.
 */
import type { LanguageModel } from '../engine/model.js';
import type { RequestSampler } from '../sample/sampler.js';
import type { SpeculativeSampler } from '../sample/speculation.js';
import type { Lane } from '../sessions/types.js';
import { AutoregressiveSequence, type AutoregressiveOptions } from './autoregressive.js';
import type { SequenceStart } from './boundary.js';
import { ContextCopy } from './context-copy.js';
import { createDepthPolicy, type DepthPolicyName } from './depth-policy.js';
import type { TokenSequence } from './sequence.js';
import { SpeculativeSequence } from './speculate.js';

export interface SpeculationSettings {
  /** Most drafts of the head in a round, 0 to 3. */
  readonly draftDepth: number;
  readonly depthPolicy: DepthPolicyName;
  readonly contextCopy: boolean;
}

/** Why this model cannot speculate; undefined when it can. */
export function speculationObstacle(
  model: LanguageModel,
  { draftDepth, contextCopy }: SpeculationSettings,
): string | undefined {
  if (!model.speculation) return 'the model cannot take a forward back';
  if (model.speculation.head === undefined && !contextCopy) return 'no draft head is loaded, and context copy is off';
  if (draftDepth === 0 && !contextCopy) return 'the draft depth is 0, and context copy is off';
  return undefined;
}

export function isSpeculative(sampler: RequestSampler): sampler is SpeculativeSampler {
  return 'accept' in sampler;
}

/** The lane of a request's states, by its sampler: rows of verify forwards may be in them, or not. */
export function laneOf(model: LanguageModel, sampler: RequestSampler): Lane {
  return isSpeculative(sampler) && model.speculation ? 'mtp' : 'ar';
}

/**
 * @param options its sampler decides: a speculative one speculates.
 * @param start of the same lane; the sequence takes over its references, also when this throws. Default: the empty state.
 */
export function createSequence(
  model: LanguageModel,
  options: AutoregressiveOptions,
  settings: SpeculationSettings,
  start?: SequenceStart,
): TokenSequence {
  const { sampler } = options;
  const { speculation } = model;
  if (!isSpeculative(sampler) || !speculation) {
    return new AutoregressiveSequence(start ?? model.newState(), options);
  }
  const speculative = {
    ...options,
    sampler,
    head: speculation.head,
    depthPolicy: createDepthPolicy(settings.depthPolicy, settings.draftDepth),
    contextCopy: settings.contextCopy ? new ContextCopy(options.promptTokens) : undefined,
    maxWindow: speculation.maxWindow,
  };
  // The state last: until a sequence holds it, nobody would give it back.
  return new SpeculativeSequence(start ?? { trunk: model.newState() }, speculative);
}
