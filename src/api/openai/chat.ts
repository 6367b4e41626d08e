/**
 * POST /v1/chat/completions: from the body to a prepared generation, and from its events to `chat.completion` objects
 * or `chat.completion.chunk` frames.
 *
 * Invariant: no chunk carries a finish reason before the generation has ended, and the chunk that does goes out together
 * with what follows it; so a stream that breaks off can never look like a whole answer.
 */
import type { AnswerPart, ToolCall } from '../../chat/conversation.js';
import type { GenerationRequest, GenerationUsage, SessionWish } from '../../schedule/request.js';
import type { Answer, FinishEvent, PreparedGeneration, RequestContext, TokenEvent } from '../answer.js';
import { GatheredAnswer, readAnswer } from '../given-answer.js';
import { findModel } from '../model-names.js';
import { planGeneration } from '../plan-generation.js';
import { bothPasses, secondPass, type SecondPassDeclined } from '../second-pass.js';
import type { ModelAlias, PartReader, PreparedConversation, ServedModel } from '../served-model.js';
import { sessionWish } from '../session-name.js';
import { answerHead, plumblineBlock, type AnswerHead, type PlumblineBlock } from './answer-head.js';
import { parseChatRequest, type ChatRequest } from './chat-request.js';
import { chatLogprob, type ChatTokenLogprob } from './logprobs.js';
import { givenThinkingFields, thinkingWish } from './thinking-fields.js';
import { openAiUsage, type OpenAiUsage } from './usage.js';

/** Parses, renders, tokenises and checks; throws a PlumblineError before anything is queued. */
export function prepareChat(body: unknown, context: RequestContext): PreparedGeneration {
  const parsed = parseChatRequest(body);
  const { model, alias } = findModel(parsed.model, context.models);
  const { readsThinking = false } = model.chat;
  const thinking = readsThinking ? thinkingWish(parsed.thinkingFields, aliasThinking(parsed, alias)) : undefined;
  const name = sessionWish(context.sessionId, parsed.promptCacheKey);
  const prepared = model.chat.prepare({ ...parsed, thinking }, name.id, {
    answerTokens: parsed.maxTokens,
    streamed: parsed.stream,
  });
  const { promptTokens, stablePrefix, splicedTurns, spliceDeclined, prefix, textDeclined } = prepared;
  const note = noteMaker(model, parsed, prepared);
  const session = { ...name, stablePrefix, splicedTurns, spliceDeclined, prefix, textDeclined, note };
  const request = planGeneration(model, { ...parsed, session }, promptTokens, 'messages', context, prepared);
  const ignored = readsThinking ? parsed.ignored : [...parsed.ignored, ...givenThinkingFields(parsed.thinkingFields)];
  return {
    model,
    request,
    stream: parsed.stream,
    answer: new ChatAnswer(model, { ...parsed, ignored }, prepared, context, request),
  };
}

/** What the name of the model says of reasoning, where no field of the request says anything. */
function aliasThinking({ templateArguments }: ChatRequest, alias: ModelAlias | undefined): boolean | undefined {
  return templateArguments['enable_thinking'] === undefined ? alias?.thinking : undefined;
}

/** Reads the answer of a turn from its tokens alone, as the client is given it, and makes the note of it. */
function noteMaker(model: ServedModel, { stop }: ChatRequest, prepared: PreparedConversation): SessionWish['note'] {
  const { promptTokens, newReader, note, guide, stopTokenIds = [] } = prepared;
  if (note === undefined || newReader === undefined) return undefined;
  return (turnTokens) => {
    const answer = readAnswer(turnTokens.subarray(promptTokens.length), {
      text: model.textSink(stop),
      reader: newReader(),
      stopTokenIds: [...model.stopTokenIds, ...stopTokenIds],
      completedAt: guide?.completedAt,
    });
    return answer && note(answer, turnTokens);
  };
}

type ClosedPass = { readonly parts: readonly AnswerPart[] } | { readonly error: unknown };

/** What was wrong with the tool calls of a first pass. */
type SecondPassReason = 'malformed' | 'unterminated';

interface SecondPassBlock {
  readonly reason: SecondPassReason;
  /** Tokens of each pass, prompt and answer. */
  readonly first: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly second: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

interface DeclinedPassBlock {
  readonly reason: SecondPassReason;
  readonly declined: SecondPassDeclined;
}

function secondPassBlock(
  { usage, reason }: { usage: GenerationUsage; reason: SecondPassReason },
  second: GenerationUsage,
): SecondPassBlock {
  const tokens = ({ promptTokens, completionTokens }: GenerationUsage) => ({
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
  });
  return { reason, first: tokens(usage), second: tokens(second) };
}

type ChatFinishReason = 'stop' | 'length' | 'tool_calls';

interface WireToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

interface WireToolCallDelta {
  readonly index: number;
  readonly id?: string;
  readonly type?: 'function';
  readonly function: Partial<WireToolCall['function']>;
}

interface Delta {
  readonly role?: 'assistant';
  readonly content?: string;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly WireToolCallDelta[];
}

interface Ending {
  readonly finishReason: ChatFinishReason;
  readonly usage: OpenAiUsage;
  readonly plumbline: PlumblineBlock & { readonly second_pass?: SecondPassBlock | DeclinedPassBlock };
}

class ChatAnswer implements Answer {
  readonly #head: AnswerHead<'chat.completion.chunk'>;
  #given = new GatheredAnswer();
  readonly #logprobs: ChatTokenLogprob[] = [];
  #ending: Ending | undefined;
  #reader: PartReader;
  /** Ids of the pass that runs, without a stop token. */
  #ids: number[] = [];
  /** What the reader said at the end of the pass. */
  #closed: ClosedPass | undefined;
  /** What the first of two passes came to, and why there was a second one. */
  #first: { readonly usage: GenerationUsage; readonly reason: SecondPassReason } | undefined;

  /** Why there was none although the tool calls could not be read. */
  #declined: DeclinedPassBlock | undefined;

  constructor(
    private readonly model: ServedModel,
    private readonly asked: ChatRequest,
    private readonly prepared: PreparedConversation,
    private readonly context: RequestContext,
    private readonly request: GenerationRequest,
  ) {
    this.#reader = prepared.reader;
    this.#head = answerHead('chatcmpl', 'chat.completion.chunk', model, context);
  }

  begin(): unknown[] {
    return [this.#chunk({ role: 'assistant', content: '' })];
  }

  token(event: TokenEvent): unknown[] {
    this.#ids.push(event.tokenId);
    const deltas = this.#reader.push(event.text).map((part) => this.#take(part));
    if (event.logprob === undefined) return deltas.map((delta) => this.#chunk(delta));
    const logprob = chatLogprob(event.logprob, event.topLogprobs ?? [], (id) => this.model.tokenBytes(id));
    this.#logprobs.push(logprob);
    const [first = {}, ...rest] = deltas;
    return [this.#chunk(first, [logprob]), ...rest.map((delta) => this.#chunk(delta))];
  }

  again(event: FinishEvent): GenerationRequest | undefined {
    const { correct } = this.prepared;
    const closed = this.#close(event);
    const reason = 'error' in closed ? 'unterminated' : this.#reader.malformed === true ? 'malformed' : undefined;
    if (reason === undefined || correct === undefined) return undefined;
    const correction = correct(this.#ids);
    const request = secondPass(this.model, {
      ...{ request: this.request, stop: this.asked.stop, finish: event, correction },
      note: noteMaker(this.model, this.asked, { ...this.prepared, ...correction }),
    });
    if (typeof request === 'string') {
      this.#declined = { reason, declined: request };
      return undefined;
    }
    this.#first = { usage: event.usage, reason };
    this.#reader = correction.newReader();
    this.#closed = undefined;
    this.#given = new GatheredAnswer();
    this.#ids = [];
    this.#logprobs.length = 0;
    return request;
  }

  end(last: FinishEvent): unknown[] {
    const event = this.#first ? { ...last, usage: bothPasses(this.#first.usage, last.usage) } : last;
    const closed = this.#close(event);
    if ('error' in closed) throw closed.error;
    const chunks = closed.parts.map((part) => this.#chunk(this.#take(part)));
    this.#remember(event);
    const called = this.#given.toolCalls.length > 0 && event.reason === 'stop';
    this.#ending = {
      finishReason: called ? 'tool_calls' : event.reason,
      usage: openAiUsage(event.usage),
      plumbline: {
        ...plumblineBlock(this.model, this.context, this.asked.ignored, event),
        ...(this.#first ? { second_pass: secondPassBlock(this.#first, last.usage) } : {}),
        ...(this.#declined && { second_pass: this.#declined }),
      },
    };
    const { finishReason, usage, plumbline } = this.#ending;
    const finish = { ...this.#chunk({}, undefined, finishReason), plumbline };
    return [...chunks, finish, ...(this.asked.includeUsage ? [{ ...this.#chunk({}), choices: [], usage }] : [])];
  }

  body(): unknown {
    const { content, reasoning, toolCalls } = this.#given;
    const called = toolCalls.length > 0;
    return {
      ...this.#head,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: called && content === '' ? null : content,
            refusal: null,
            ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
            ...(called ? { tool_calls: toolCalls.map(wireCall) } : {}),
          },
          logprobs: this.asked.topLogprobs === undefined ? null : { content: this.#logprobs, refusal: null },
          finish_reason: this.#ending?.finishReason ?? null,
        },
      ],
      usage: this.#ending?.usage ?? null,
      plumbline: this.#ending?.plumbline ?? null,
    };
  }

  /** Reads the rest of the pass, once. */
  #close(event: FinishEvent): ClosedPass {
    if (this.#closed === undefined) {
      try {
        this.#closed = { parts: [...this.#reader.push(event.text), ...this.#reader.finish(event.reason === 'length')] };
      } catch (error) {
        this.#closed = { error };
      }
    }
    return this.#closed;
  }

  /** A turn whose state is kept can be put back with its tokens when the client sends it again. */
  #remember({ usage }: FinishEvent): void {
    const turnTokens = usage.session?.turnTokens;
    if (turnTokens !== undefined) this.prepared.remember?.(this.#given, turnTokens);
  }

  /** Adds a part to the whole answer and gives it back as a delta. */
  #take(part: AnswerPart): Delta {
    this.#given.take(part);
    switch (part.kind) {
      case 'content':
        return { content: part.text };
      case 'reasoning':
        return { reasoning_content: part.text };
      case 'tool-call':
        return { tool_calls: [{ index: part.index, ...wireCall({ ...part, arguments: '' }) }] };
      case 'tool-arguments':
        return { tool_calls: [{ index: part.index, function: { arguments: part.text } }] };
    }
  }

  #chunk(delta: Delta, logprobs?: readonly ChatTokenLogprob[], finishReason: ChatFinishReason | null = null): object {
    return {
      ...this.#head,
      choices: [
        {
          index: 0,
          delta,
          logprobs: logprobs === undefined ? null : { content: logprobs, refusal: null },
          finish_reason: finishReason,
        },
      ],
      // With usage asked for, every chunk has the member, and all but the last have null in it.
      ...(this.asked.includeUsage ? { usage: null } : {}),
    };
  }
}

function wireCall({ id, name, arguments: text }: ToolCall): WireToolCall {
  return { id, type: 'function', function: { name, arguments: text } };
}
