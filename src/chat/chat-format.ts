/**
 * The chat side of a model: conversation to prompt ids, and a reader for the answer to it.
 *
 * Invariants: the template of the checkpoint writes the prompt where there is one, else the layout of the family's dialect;
 * either writes the markers of turns, so the prompt is encoded with added tokens recognised and with nothing added around
 * it; a reader starts where the prompt ended, inside the reasoning or not, as the text of the prompt itself says. Where an
 * earlier answer is put back with the tokens that were generated, they stand for exactly the text up to the mark that ends
 * its turn, and what follows is encoded as it is.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { AnswerGuide } from '../schedule/request.js';
import type { TextPrefixes } from '../sessions/text-prefixes.js';
import type { Tokenizer } from '../tokens/tokenizer.js';
import { AnswerReader, THINK_AND_TOOL_CALL_TAGS, type AnswerMarkers } from './answer-reader.js';
import { BlockAnswerReader } from './block-answer-reader.js';
import { BlockGuide } from './block-guide.js';
import type { Conversation } from './conversation.js';
import type { AnswerPartReader, ChatDialect, ThinkingMode } from './dialects/dialect.js';
import type { CommittedTurns, GivenAnswer, SpliceDeclined } from './history-splice.js';
import { fromKnownText, type KnownText, type TextDeclined } from './known-text.js';
import { spliceAnswer, stablePart, type TurnEndToken } from './prompt-splice.js';
import { PlumblineError } from '../errors.js';
import { ChatTemplate, readTemplateSources, type ChatTemplateOptions } from './template.js';
import { thinkingMode } from './thinking.js';

export interface PreparedChat {
  readonly promptTokens: readonly number[];
  readonly reader: AnswerPartReader;
  /** Another reader of the same answer: it gives the same parts, ids of calls among them. */
  readonly newReader: () => AnswerPartReader;
  /** So many tokens will begin the prompt of the next turn, too, whatever the answer is. */
  readonly stablePrefix: number;
  /** Earlier answers that stand in the prompt with the tokens that were generated, and why the latest does not. */
  readonly splicedTurns: number;
  readonly spliceDeclined?: SpliceDeclined | undefined;
  /** Whether the prompt begins with stored tokens that were found by their text. */
  readonly prefix?: KnownText['prefix'] | undefined;
  readonly textDeclined?: TextDeclined | undefined;
  /** Remembers the answer, so that it can be put back. Does nothing for a conversation without a session's name. */
  remember(answer: GivenAnswer, turnTokens: Int32Array): void;
  /** What a store is to keep beside the turn, so that the answer can be put back after a restart; of a named session. */
  readonly note?: ((answer: GivenAnswer, turnTokens: Int32Array) => Uint8Array) | undefined;
  /** Of a dialect: whether the model reasons first. */
  readonly thinking?: boolean;
  /** Of a dialect, when tools are offered. */
  readonly guide?: AnswerGuide;
  /** Of a dialect, when tools are offered: the prompt and the reader of another answer behind one that could not be read. */
  readonly correct?: ((answer: readonly number[]) => Correction) | undefined;
  /** Of a dialect: ids that end this answer beside the model's own. */
  readonly stopTokenIds?: readonly number[];
}

/** Another answer behind one whose tool calls could not be read. */
export type Correction = Pick<PreparedChat, 'promptTokens' | 'newReader' | 'guide'>;

interface Correctable {
  readonly conversation: Conversation;
  readonly promptTokens: readonly number[];
  readonly thinking: ThinkingMode;
  readonly newCallId: (index: number) => string;
}

/** Whose conversation it is, and what was answered in it. */
export interface ChatMemory {
  readonly session: string | undefined;
  readonly committed: CommittedTurns;
  readonly turnEnds: readonly TurnEndToken[];
  /** Present where kept states are known by their text. */
  readonly texts?: TextPrefixes | undefined;
  /** Whether the answer is given out as it comes. */
  readonly streamed?: boolean | undefined;
  /** Tokens that the answer needs; default 1. */
  readonly answerTokens?: number | undefined;
}

export interface ChatFormatOptions extends Omit<ChatTemplateOptions, 'namedTokens'> {
  /** The tags of the model's answers, without a dialect; default: `<think>` and `<tool_call>`. */
  readonly markers?: AnswerMarkers | undefined;
  /** The dialect of the model's family; absent: prompts need a template. */
  readonly dialect?: ChatDialect | undefined;
  /** Makes the ids of tool calls; default: random ones of each prompt, because a client matches answers to calls by it. */
  readonly newCallId?: ((index: number) => string) | undefined;
}

/** What a model is told of tool calls that could not be read. */
const UNREADABLE =
  'Error: the tool call could not be read. Write the whole block again, in the form that the instructions give.';

type ChatTokenizer = Pick<Tokenizer, 'encode'> & Partial<Pick<Tokenizer, 'addedTokenId' | 'tokenBytes' | 'isSpecial'>>;

/** The template of a checkpoint folder, where it has one. Throws `chat_template_error` when it does not parse. */
export async function loadTemplate(
  folder: string,
  tokenizer: Tokenizer,
  now?: ChatTemplateOptions['now'],
): Promise<ChatTemplate | undefined> {
  const sources = await readTemplateSources(folder, tokenizer.config);
  return sources && new ChatTemplate(sources, { namedTokens: tokenizer.namedTokens, now });
}

export class ChatFormat {
  readonly #tokenizer: ChatTokenizer;
  readonly #template: ChatTemplate | undefined;
  readonly #markers: AnswerMarkers;
  readonly #dialect: ChatDialect | undefined;
  readonly #newCallId: ((index: number) => string) | undefined;
  readonly #visible: ReadonlySet<number>;

  /** @param template undefined: the model has none, and without a dialect every conversation is refused. */
  constructor(tokenizer: ChatTokenizer, template: ChatTemplate | undefined, options: ChatFormatOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.#markers = options.markers ?? THINK_AND_TOOL_CALL_TAGS;
    this.#dialect = options.dialect;
    this.#newCallId = options.newCallId;
    this.#visible = new Set(this.#idsOf(this.#dialect?.visibleTokens ?? []));
  }

  /** With the template of a checkpoint folder. Throws `chat_template_error` when it does not parse. */
  static async load(folder: string, tokenizer: Tokenizer, options: ChatFormatOptions = {}): Promise<ChatFormat> {
    return new ChatFormat(tokenizer, await loadTemplate(folder, tokenizer, options.now), options);
  }

  /** Whether prompts follow the dialect's layout, for want of a template. */
  get usesLayout(): boolean {
    return this.#template === undefined && this.#dialect !== undefined;
  }

  /** Whether the thinking fields of a request are read. */
  get readsThinking(): boolean {
    return this.#dialect !== undefined;
  }

  /** Whether the tokenizer may leave this id out of the text: special tokens, but for those that the dialect writes with. */
  isHidden(id: number): boolean {
    return this.#tokenizer.isSpecial?.(id) === true && !this.#visible.has(id);
  }

  /** The prompt as text. Throws `chat_template_error`, or `invalid_request` for a template variable of the server. */
  render(conversation: Conversation, thinking: ThinkingMode = 'off'): string {
    if (this.#template !== undefined) return this.#renderTemplate(this.#template, conversation, thinking, true);
    if (this.#dialect !== undefined) return this.#dialect.layout(conversation, thinking);
    throw new PlumblineError(
      'chat_template_error',
      'the model has no chat template; send the prompt as text to the completions route',
      { param: 'messages' },
    );
  }

  #renderTemplate(
    template: ChatTemplate,
    conversation: Conversation,
    thinking: ThinkingMode,
    opensAnswer: boolean,
  ): string {
    if (this.#dialect === undefined) return template.render(conversation, opensAnswer);
    const { templateArguments } = conversation;
    const mode = { enable_thinking: thinking !== 'off', thinking: thinking !== 'off' };
    const effort = thinking === 'off' ? {} : { reasoning_effort: thinking };
    return template.render(
      { ...conversation, templateArguments: { ...mode, ...effort, ...templateArguments } },
      opensAnswer,
    );
  }

  /**
   * Prompt ids of a conversation and the reader of the answer to it.
   * @param mostTokens a prompt that is certainly longer is refused before it is encoded (`context_length_exceeded`).
   * @param memory absent: every turn is encoded anew
   * Throws as `render` does.
   */
  prepare(conversation: Conversation, mostTokens?: number, memory?: ChatMemory): PreparedChat {
    const thinking = this.#dialect === undefined ? 'off' : thinkingMode(conversation, mostTokens);
    const prompt = this.render(conversation, thinking);
    const history = memory?.committed.follow(memory.session, conversation);
    const splice =
      memory && history?.last
        ? spliceAnswer(history.last, memory.turnEnds, conversation, prompt, (other) => this.render(other, thinking))
        : undefined;
    const spliced = typeof splice === 'object' ? splice : { head: [], tail: prompt };
    const limit = mostTokens === undefined ? undefined : { tokens: mostTokens, param: 'messages' };
    const encode = (text: string): readonly number[] => this.#tokenizer.encode(text);
    const plain = this.#tokenizer.encode(spliced.tail, { limit });
    const found = spliced.head.length === 0 ? this.#known(plain, mostTokens, memory) : undefined;
    const known = typeof found === 'object' ? found : undefined;
    const head = known ? known.promptTokens.slice(0, known.prefix.tokens) : spliced.head;
    const tail = known ? known.promptTokens.slice(known.prefix.tokens) : plain;
    const { session, committed } = memory ?? {};
    const newCallId = this.#newCallId ?? callIds();
    const newReader = this.#readerMaker(conversation, prompt, newCallId, memory?.streamed);
    const promptTokens = [...head, ...tail];
    return {
      promptTokens,
      prefix: known?.prefix,
      textDeclined: typeof found === 'string' ? found : undefined,
      stablePrefix: head.length + stablePart(this.#closedText(conversation, thinking), prompt, tail, encode),
      splicedTurns: typeof splice === 'object' ? (history?.spliced ?? 0) : 0,
      spliceDeclined: typeof splice === 'string' ? splice : history?.declined,
      remember: (answer, turnTokens) => {
        if (session !== undefined && history) committed?.remember(session, history.key, answer, turnTokens);
      },
      ...(session !== undefined &&
        history && { note: (answer, turnTokens) => memory!.committed.note(history, answer, turnTokens) }),
      reader: newReader(),
      newReader,
      ...(this.#dialect && this.#dialectParts(this.#dialect, conversation, thinking)),
      ...(this.#dialect && this.#correctable(this.#dialect, { conversation, promptTokens, thinking, newCallId })),
    };
  }

  #known(plain: readonly number[], mostTokens: number | undefined, memory: ChatMemory | undefined) {
    const { texts, session, answerTokens = 1 } = memory ?? {};
    if (texts === undefined) return undefined;
    const room = (mostTokens ?? Infinity) - answerTokens;
    return fromKnownText(plain, { texts, session, mostTokens: room }, (text) => this.#tokenizer.encode(text));
  }

  #dialectParts(
    dialect: ChatDialect,
    { tools }: Conversation,
    thinking: ThinkingMode,
  ): Pick<PreparedChat, 'thinking' | 'stopTokenIds' | 'guide'> {
    return {
      thinking: thinking !== 'off',
      stopTokenIds: this.#idsOf(dialect.stopTokens(thinking)),
      ...(tools.length > 0 && { guide: this.#guide(dialect, tools) }),
    };
  }

  #correctable(dialect: ChatDialect, asked: Correctable): Pick<PreparedChat, 'correct'> {
    const { conversation, promptTokens, thinking, newCallId } = asked;
    if (conversation.tools.length === 0) return {};
    const text = dialect.correction(UNREADABLE, thinking);
    const newReader = this.#readerMaker(conversation, text, newCallId, false);
    return {
      correct: (answer) => ({
        promptTokens: [...promptTokens, ...answer, ...this.#tokenizer.encode(text)],
        newReader,
        ...this.#dialectParts(dialect, conversation, thinking),
      }),
    };
  }

  #readerMaker(
    { tools }: Conversation,
    prompt: string,
    newCallId: (index: number) => string,
    live: boolean | undefined,
  ): () => AnswerPartReader {
    const dialect = this.#dialect;
    const open = dialect ? dialect.reasoning.open : this.#markers.reasoning?.open;
    const inside = open !== undefined && prompt.trimEnd().endsWith(open);
    if (dialect) {
      const start = inside ? 'reasoning' : 'answer';
      return () => new BlockAnswerReader(dialect, { start, tools, newCallId, live });
    }
    const start = !inside ? 'answer' : prompt.endsWith(open) ? 'reasoning-tag' : 'reasoning';
    return () => new AnswerReader(this.#markers, { start, readToolCalls: tools.length > 0, newCallId });
  }

  /** The conversation without the beginning of an answer; undefined when it cannot end so. */
  #closedText(conversation: Conversation, thinking: ThinkingMode): string | undefined {
    if (this.#template === undefined) return this.#dialect?.layout(conversation, thinking, false);
    try {
      return this.#renderTemplate(this.#template, conversation, thinking, false);
    } catch (error) {
      if (error instanceof PlumblineError && error.code === 'chat_template_error') return undefined;
      throw error;
    }
  }

  #guide(dialect: ChatDialect, tools: Conversation['tools']): BlockGuide {
    return new BlockGuide(dialect.tools, tools, {
      tokenBytes: (id) => this.#tokenizer.tokenBytes?.(id),
      isSpecial: (id) => this.isHidden(id),
    });
  }

  /** Ids of the added tokens that the tokenizer has of these. */
  #idsOf(tokens: readonly string[]): number[] {
    return tokens.flatMap((token) => this.#tokenizer.addedTokenId?.(token) ?? []);
  }
}

/** Ids of the calls of one answer: nobody can guess them, and whoever reads the answer again finds the same. */
function callIds(): (index: number) => string {
  const salt = randomUUID();
  return (index) => `call_${createHash('sha256').update(`${salt} ${index}`).digest('hex').slice(0, 24)}`;
}
