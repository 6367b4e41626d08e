/**
 * The chat side of a model: conversation to prompt ids, and a reader for the answer to it.
 *
 * Invariants: the template of the checkpoint writes the prompt where there is one, else the layout of the family's dialect;
 * either writes the markers of turns, so the prompt is encoded with added tokens recognised and with nothing added around
 * it; a reader starts where the prompt ended, inside the reasoning or not, as the text of the prompt itself says.
 */
import { randomUUID } from 'node:crypto';
import type { AnswerGuide } from '../schedule/request.js';
import type { Tokenizer } from '../tokens/tokenizer.js';
import { AnswerReader, THINK_AND_TOOL_CALL_TAGS, type AnswerMarkers } from './answer-reader.js';
import { BlockAnswerReader } from './block-answer-reader.js';
import { BlockGuide } from './block-guide.js';
import type { Conversation } from './conversation.js';
import type { AnswerPartReader, ChatDialect, ThinkingMode } from './dialects/dialect.js';
import { PlumblineError } from '../errors.js';
import { ChatTemplate, readTemplateSources, type ChatTemplateOptions } from './template.js';
import { thinkingMode } from './thinking.js';

export interface PreparedChat {
  readonly promptTokens: readonly number[];
  readonly reader: AnswerPartReader;
  /** Of a dialect: whether the model reasons first. */
  readonly thinking?: boolean;
  /** Of a dialect, when tools are offered. */
  readonly guide?: AnswerGuide;
  /** Of a dialect: ids that end this answer beside the model's own. */
  readonly stopTokenIds?: readonly number[];
}

export interface ChatFormatOptions extends Omit<ChatTemplateOptions, 'namedTokens'> {
  /** The tags of the model's answers, without a dialect; default: `<think>` and `<tool_call>`. */
  readonly markers?: AnswerMarkers | undefined;
  /** The dialect of the model's family; absent: prompts need a template. */
  readonly dialect?: ChatDialect | undefined;
  /** Makes the ids of tool calls; default: a random one, because a client matches answers to calls by it. */
  readonly newCallId?: ((index: number) => string) | undefined;
}

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
  readonly #newCallId: (index: number) => string;
  readonly #visible: ReadonlySet<number>;

  /** @param template undefined: the model has none, and without a dialect every conversation is refused. */
  constructor(tokenizer: ChatTokenizer, template: ChatTemplate | undefined, options: ChatFormatOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.#markers = options.markers ?? THINK_AND_TOOL_CALL_TAGS;
    this.#dialect = options.dialect;
    this.#newCallId = options.newCallId ?? (() => `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`);
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
    if (this.#template !== undefined) {
      if (this.#dialect === undefined) return this.#template.render(conversation);
      const { templateArguments } = conversation;
      const mode = { enable_thinking: thinking !== 'off', thinking: thinking !== 'off' };
      const effort = thinking === 'off' ? {} : { reasoning_effort: thinking };
      return this.#template.render({
        ...conversation,
        templateArguments: { ...mode, ...effort, ...templateArguments },
      });
    }
    if (this.#dialect !== undefined) return this.#dialect.layout(conversation, thinking);
    throw new PlumblineError(
      'chat_template_error',
      'the model has no chat template; send the prompt as text to the completions route',
      { param: 'messages' },
    );
  }

  /**
   * Prompt ids of a conversation and the reader of the answer to it.
   * @param mostTokens a prompt that is certainly longer is refused before it is encoded (`context_length_exceeded`).
   * Throws as `render` does.
   */
  prepare(conversation: Conversation, mostTokens?: number): PreparedChat {
    const dialect = this.#dialect;
    const thinking = dialect === undefined ? 'off' : thinkingMode(conversation, mostTokens);
    const prompt = this.render(conversation, thinking);
    const limit = mostTokens === undefined ? undefined : { tokens: mostTokens, param: 'messages' };
    const promptTokens = this.#tokenizer.encode(prompt, { limit });
    if (dialect === undefined) return { promptTokens, reader: this.#tagReader(prompt, conversation) };
    const { tools } = conversation;
    return {
      promptTokens,
      reader: new BlockAnswerReader(dialect, {
        start: prompt.trimEnd().endsWith(dialect.reasoning.open) ? 'reasoning' : 'answer',
        tools,
        newCallId: this.#newCallId,
      }),
      thinking: thinking !== 'off',
      stopTokenIds: this.#idsOf(dialect.stopTokens(thinking)),
      ...(tools.length > 0 && { guide: this.#guide(dialect, tools) }),
    };
  }

  #tagReader(prompt: string, { tools }: Conversation): AnswerReader {
    const open = this.#markers.reasoning?.open;
    const inside = open !== undefined && prompt.trimEnd().endsWith(open);
    return new AnswerReader(this.#markers, {
      start: !inside ? 'answer' : prompt.endsWith(open) ? 'reasoning-tag' : 'reasoning',
      readToolCalls: tools.length > 0,
      newCallId: this.#newCallId,
    });
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
