/**
 * From a parsed request to the scheduler's request: checks the prompt against vocabulary and context, and settles how many
 * tokens may be made.
 *
 * Invariant: prompt plus `maxTokens` never exceed the context; a limit that the client asked for is never lowered in
 * silence: it is an error.
 */
import { PlumblineError } from '../errors.js';
import type { GenerationRequest, SamplingOptions, SessionWish, SpeculationMode } from '../schedule/request.js';
import type { RequestContext } from './answer.js';
import { settleSampling } from './sampling-fields.js';
import type { PreparedConversation, ServedModel } from './served-model.js';

export interface GenerationWish {
  readonly sampling: SamplingOptions;
  /** undefined: the server's default, or what the context holds. */
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  readonly topLogprobs: number | undefined;
  readonly speculation?: SpeculationMode | undefined;
  readonly session?: SessionWish | undefined;
}

/** What the chat format adds to a request. */
export type ChatSide = Pick<PreparedConversation, 'thinking' | 'guide' | 'stopTokenIds'>;

/**
 * @param promptParam the field that the prompt came from, for errors.
 * @param chat of a conversation.
 * Throws `invalid_request`, `unsupported_parameter` and `context_length_exceeded`.
 */
export function planGeneration(
  model: ServedModel,
  wish: GenerationWish,
  promptTokens: readonly number[],
  promptParam: string,
  { requestId, signal }: RequestContext,
  chat: ChatSide = {},
): GenerationRequest {
  const sampling = settleSampling(wish.sampling, model.samplingRules);
  if (promptTokens.length === 0) {
    throw new PlumblineError('invalid_request', `'${promptParam}' has no tokens; a prompt needs at least one`, {
      param: promptParam,
    });
  }
  const outside = promptTokens.findIndex((id) => id >= model.vocabSize || model.tokenBytes(id) === undefined);
  if (outside !== -1) {
    const param = `${promptParam}[${outside}]`;
    throw new PlumblineError('invalid_request', `'${param}' is not a token id of '${model.id}'`, { param });
  }
  return {
    requestId,
    promptTokens,
    maxTokens: maxTokens(model, wish.maxTokens, promptTokens.length, promptParam),
    sampling,
    text: model.textSink(wish.stop),
    stopTokenIds: [...model.stopTokenIds, ...(chat.stopTokenIds ?? [])],
    topLogprobs: wish.topLogprobs,
    speculation: wish.speculation,
    session: wish.session,
    thinking: chat.thinking,
    guide: chat.guide,
    signal,
    timeoutMs: model.timeoutMs,
  };
}

function maxTokens(model: ServedModel, asked: number | undefined, promptLength: number, promptParam: string): number {
  const room = model.contextLength - promptLength;
  if (room < 1) {
    throw new PlumblineError(
      'context_length_exceeded',
      `the prompt has ${promptLength} tokens, the context of '${model.id}' ${model.contextLength}, and at least one must be left for the answer`,
      { param: promptParam },
    );
  }
  if (asked === undefined) return Math.min(model.defaultMaxTokens ?? room, room);
  if (asked > room) {
    throw new PlumblineError(
      'context_length_exceeded',
      `the prompt has ${promptLength} tokens and ${asked} were asked for, together more than the context of '${model.id}' (${model.contextLength}); lower the limit to ${room} or shorten the prompt`,
      { param: promptParam },
    );
  }
  return asked;
}
