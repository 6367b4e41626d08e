/**
 * A second pass of a request whose answer had tool calls that cannot be read: the model is told so, and goes on with the same
 * generator.
 *
 * Invariants: there is one second pass at most, never where something was given out already, and none where the answer was
 * cut by a limit or a stop string; both passes together keep to the request's limit of tokens. Without one the first answer
 * stands as it is.
 */
import type { Correction } from '../chat/chat-format.js';
import type { GenerationRequest, GenerationUsage, SessionWish } from '../schedule/request.js';
import type { FinishEvent } from './answer.js';
import type { ServedModel } from './served-model.js';

export interface FirstPass {
  readonly request: GenerationRequest;
  readonly stop: readonly string[];
  readonly finish: FinishEvent;
  readonly correction: Correction;
  /** Makes the note of the second answer. */
  readonly note: SessionWish['note'];
}

/** Why an answer with tool calls that cannot be read gets no second pass. */
export type SecondPassDeclined =
  /** A limit or a stop string ended the answer. */
  | 'answer_cut'
  /** The tokens that were asked for, or the context, are used up. */
  | 'no_room'
  /** The law of the model has no generator that another request can go on with. */
  | 'no_generator_state';

/** The request of the second pass, or why there is none. */
export function secondPass(model: ServedModel, first: FirstPass): GenerationRequest | SecondPassDeclined {
  const { request, stop, finish, correction, note } = first;
  const { id, source, stablePrefix } = request.session ?? {};
  const { usage } = finish;
  if (finish.reason !== 'stop' || typeof finish.stopMatch === 'string') return 'answer_cut';
  if (usage.randomState === undefined) return 'no_generator_state';
  const { promptTokens, guide } = correction;
  const room = model.contextLength - promptTokens.length;
  const maxTokens = Math.min(request.maxTokens - usage.completionTokens, room);
  if (maxTokens < 1) return 'no_room';
  return {
    ...request,
    promptTokens,
    maxTokens,
    guide,
    // Under such a law a seed is the state that a generator begins with.
    sampling: { ...request.sampling, seed: usage.randomState },
    text: model.textSink(stop),
    session: { id, source, stablePrefix, note },
  };
}

/** What both passes came to, as those of one answer. */
export function bothPasses(first: GenerationUsage, second: GenerationUsage): GenerationUsage {
  const warnings = [first.logitsWarning, second.logitsWarning].filter((warning) => warning !== undefined);
  const [warning] = warnings;
  return {
    ...second,
    promptTokens: first.promptTokens,
    completionTokens: first.completionTokens + second.completionTokens,
    cachedTokens: first.cachedTokens,
    prefillMs: first.prefillMs + second.prefillMs,
    decodeMs: first.decodeMs + second.decodeMs,
    seed: first.seed,
    session: second.session && { ...(first.session ?? second.session), ...storedOf(second.session) },
    logitsWarning: warning && { ...warning, rows: warnings.reduce((sum, { rows }) => sum + rows, 0) },
  };
}

const storedOf = ({ stored, turnTokens }: NonNullable<GenerationUsage['session']>) => ({ stored, turnTokens });
