/**
 * A served model as the wire formats see it: names and limits, text to ids and back, the chat format, and the door to
 * the scheduler. The composition of a server fills it from the real parts; tests fill it with small ones.
 *
 * Invariant: everything that can refuse a request (template, tokenizer, context, queue) does so before the first event,
 * so that an HTTP status can still say it.
 */
import type { PreparedChat } from '../chat/chat-format.js';
import type { KnownText, TextDeclined } from '../chat/known-text.js';
import type { AnswerPart, Conversation } from '../chat/conversation.js';
import type { SamplingRules } from '../sample/sampling-rules.js';
import type { GenerationEvent, GenerationRequest, TextSink } from '../schedule/request.js';

export interface ServedModel {
  /** Name in `model` fields. */
  readonly id: string;
  /** Further names that its law gives it. */
  readonly aliases?: readonly ModelAlias[] | undefined;
  /** Model family, for labels and reports; nothing here decides by it. */
  readonly family: string;
  /** Unix time in seconds at which it was loaded. */
  readonly createdAt: number;
  /** Ids that the model takes are in [0, vocabSize). */
  readonly vocabSize: number;
  /** Most tokens, prompt and answer together, that one request may use. */
  readonly contextLength: number;
  /** Tokens of an answer when the request does not say; undefined: as many as the context holds. */
  readonly defaultMaxTokens: number | undefined;
  /** Milliseconds that a request may take, waiting included; undefined: no limit. */
  readonly timeoutMs: number | undefined;
  /** What its sampler law says of the sampling fields. */
  readonly samplingRules: SamplingRules;
  /** Ids that end a turn. */
  readonly stopTokenIds: readonly number[];
  readonly build: BuildInfo;
  /** Ids of a text that a client wrote as a plain prompt. Throws `context_length_exceeded` for one that cannot fit. */
  encode(text: string): readonly number[];
  /**
   * A prompt whose text begins with one whose state is kept, with the tokens that are kept; undefined: none is known, or the
   * model's states are known by tokens alone.
   */
  knownText?(prompt: readonly number[], session?: string, answerTokens?: number): KnownText | TextDeclined | undefined;
  /** Bytes of an id; undefined for ids without a token. */
  tokenBytes(id: number): Uint8Array | undefined;
  /** The text side of one generation: detokeniser and stop strings. */
  textSink(stop: readonly string[]): TextSink;
  readonly chat: ConversationFormat;
  /**
   * Puts a request into the queue. Throws at once (`queue_full`, `shutting_down`) when it cannot be taken; failures of
   * the generation itself come from the iteration.
   */
  submit(request: GenerationRequest): AsyncIterable<GenerationEvent>;
}

/** A name that also says whether the model reasons first. */
export interface ModelAlias {
  readonly name: string;
  readonly thinking: boolean;
}

/** What computed an answer, for `system_fingerprint` and the `plumbline` block. */
export interface BuildInfo {
  readonly version: string;
  /** `cpu`, `wasm` or `reference`. */
  readonly backend: string;
  readonly activationLaw: string;
}

/** The chat side of a model: the part of chat/ that a request needs. */
export interface ConversationFormat {
  /**
   * Prompt ids of a conversation and the reader of the answer to it. Throws `chat_template_error`, `context_length_exceeded`.
   * @param session as the client names it; earlier answers of it come back with the tokens that were generated
   */
  prepare(conversation: Conversation, session?: string, wish?: AnswerWish): PreparedConversation;
  /** Whether it reads the thinking fields of a request (`reasoning_effort`, `thinking`, `think`); if not, they are ignored. */
  readonly readsThinking?: boolean | undefined;
}

/** What the answer is to be, as far as its prompt and its reader depend on it. */
export interface AnswerWish {
  /** Tokens that are asked for, so that tokens of earlier answers leave room for them. */
  readonly answerTokens?: number | undefined;
  /** Whether it is given out as it comes. */
  readonly streamed?: boolean | undefined;
}

/** What the chat format prepared; of all but the prompt and the reader, a format gives what it has. */
export interface PreparedConversation
  extends Pick<PreparedChat, 'promptTokens'>, Partial<Omit<PreparedChat, 'promptTokens' | 'reader' | 'newReader'>> {
  readonly reader: PartReader;
  /** Another reader of the same answer; a format that gives notes has it. */
  readonly newReader?: (() => PartReader) | undefined;
}

/** Splits the text of one answer into reasoning, content and tool calls, as it comes. */
export interface PartReader {
  /** Whether a block of tool calls was malformed. */
  readonly malformed?: boolean;
  push(text: string): readonly AnswerPart[];
  /**
   * What is still held back, once no more text comes.
   * @param cut whether the answer was cut by its token limit.
   * Throws `tool_call_unterminated`, in formats where that is an error.
   */
  finish(cut: boolean): readonly AnswerPart[];
}
