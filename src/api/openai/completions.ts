/**
 * POST /v1/completions: from the body to a prepared generation, and from its events to `text_completion` objects, whole
 * or in chunks. Invariants as in chat.ts: the finish reason comes last, together with what follows it.
 */
import type { FinishReason } from '../../schedule/request.js';
import type { Answer, FinishEvent, PreparedGeneration, RequestContext, TokenEvent } from '../answer.js';
import { findModel } from '../model-names.js';
import { planGeneration } from '../plan-generation.js';
import { sessionWish } from '../session-name.js';
import type { ServedModel } from '../served-model.js';
import { answerHead, plumblineBlock, type AnswerHead, type PlumblineBlock } from './answer-head.js';
import { parseCompletionRequest, type CompletionRequest } from './completion-request.js';
import { completionLogprobs, joinCompletionLogprobs, type CompletionLogprobs } from './logprobs.js';
import { openAiUsage, type OpenAiUsage } from './usage.js';

/** Parses, tokenises and checks; throws a PlumblineError before anything is queued. */
export function prepareCompletion(body: unknown, context: RequestContext): PreparedGeneration {
  const parsed = parseCompletionRequest(body);
  const { model } = findModel(parsed.model, context.models);
  const name = sessionWish(context.sessionId, parsed.promptCacheKey);
  const plain = parsed.prompt.kind === 'text' ? model.encode(parsed.prompt.text) : parsed.prompt.ids;
  // Ids are meant as they are.
  const found = parsed.prompt.kind === 'text' ? model.knownText?.(plain, name.id, parsed.maxTokens) : undefined;
  const known = typeof found === 'object' ? found : undefined;
  const textDeclined = typeof found === 'string' ? found : undefined;
  const promptTokens = known?.promptTokens ?? plain;
  const session = { ...name, prefix: known?.prefix, textDeclined };
  const request = planGeneration(model, { ...parsed, session }, promptTokens, 'prompt', context);
  return { model, request, stream: parsed.stream, answer: new CompletionAnswer(model, parsed, context) };
}

class CompletionAnswer implements Answer {
  readonly #head: AnswerHead<'text_completion'>;
  #text = '';
  readonly #logprobs: CompletionLogprobs[] = [];
  #ending: { reason: FinishReason; usage: OpenAiUsage; plumbline: PlumblineBlock } | undefined;

  constructor(
    private readonly model: ServedModel,
    private readonly asked: CompletionRequest,
    private readonly context: RequestContext,
  ) {
    this.#head = answerHead('cmpl', 'text_completion', model, context);
  }

  begin(): unknown[] {
    return [];
  }

  token(event: TokenEvent): unknown[] {
    const offset = this.#text.length;
    this.#text += event.text;
    if (event.logprob === undefined) return event.text === '' ? [] : [this.#chunk(event.text)];
    const logprobs = completionLogprobs(event.logprob, event.topLogprobs ?? [], offset, (id) =>
      this.model.tokenBytes(id),
    );
    this.#logprobs.push(logprobs);
    return [this.#chunk(event.text, logprobs)];
  }

  end(event: FinishEvent): unknown[] {
    this.#text += event.text;
    const usage = openAiUsage(event.usage);
    const plumbline = plumblineBlock(this.model, this.context, this.asked.ignored, event);
    this.#ending = { reason: event.reason, usage, plumbline };
    const finish = { ...this.#chunk(event.text, undefined, event.reason), plumbline };
    return [finish, ...(this.asked.includeUsage ? [{ ...this.#chunk(''), choices: [], usage }] : [])];
  }

  body(): unknown {
    const logprobs = this.asked.topLogprobs === undefined ? null : joinCompletionLogprobs(this.#logprobs);
    return {
      ...this.#head,
      choices: [{ index: 0, text: this.#text, logprobs, finish_reason: this.#ending?.reason ?? null }],
      usage: this.#ending?.usage ?? null,
      plumbline: this.#ending?.plumbline ?? null,
    };
  }

  #chunk(text: string, logprobs: CompletionLogprobs | null = null, finishReason: FinishReason | null = null): object {
    return {
      ...this.#head,
      choices: [{ index: 0, text, logprobs, finish_reason: finishReason }],
      ...(this.asked.includeUsage ? { usage: null } : {}),
    };
  }
}
