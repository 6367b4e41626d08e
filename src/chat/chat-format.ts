/**
 * The chat side of a model: conversation to prompt ids, and a reader for the answer to it.
 *
 * Invariants: the template writes the markers of turns, so the rendered prompt is encoded with added tokens recognised
 * and with nothing added around it; a reader starts where the prompt ended, inside the reasoning or not, as the text of
 * the prompt itself says.
 */
import { randomUUID } from 'node:crypto';
import type { Tokenizer } from '../tokens/tokenizer.js';
import { AnswerReader, THINK_AND_TOOL_CALL_TAGS, type AnswerMarkers } from './answer-reader.js';
import type { Conversation } from './conversation.js';
import { PlumblineError } from '../errors.js';
import { ChatTemplate, readTemplateSources, type ChatTemplateOptions } from './template.js';

export interface PreparedChat {
  readonly promptTokens: readonly number[];
  readonly reader: AnswerReader;
}

export interface ChatFormatOptions extends Omit<ChatTemplateOptions, 'namedTokens'> {
  /** The tags of the model's answers; default: `<think>` and `<tool_call>`. */
  readonly markers?: AnswerMarkers | undefined;
  /** Makes the ids of tool calls; default: a random one, because a client matches answers to calls by it. */
  readonly newCallId?: ((index: number) => string) | undefined;
}

export class ChatFormat {
  readonly #tokenizer: Pick<Tokenizer, 'encode'>;
  readonly #template: ChatTemplate | undefined;
  readonly #markers: AnswerMarkers;
  readonly #newCallId: (index: number) => string;

  /** @param template undefined: the model has none, and every conversation is refused. */
  constructor(
    tokenizer: Pick<Tokenizer, 'encode'>,
    template: ChatTemplate | undefined,
    options: ChatFormatOptions = {},
  ) {
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.#markers = options.markers ?? THINK_AND_TOOL_CALL_TAGS;
    this.#newCallId = options.newCallId ?? (() => `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`);
  }

  /** Reads the template of a checkpoint folder. Throws `chat_template_error` when it does not parse. */
  static async load(folder: string, tokenizer: Tokenizer, options: ChatFormatOptions = {}): Promise<ChatFormat> {
    const sources = await readTemplateSources(folder, tokenizer.config);
    const template = sources && new ChatTemplate(sources, { namedTokens: tokenizer.namedTokens, now: options.now });
    return new ChatFormat(tokenizer, template, options);
  }

  /** The prompt as text. Throws `chat_template_error`, or `invalid_request` for a template variable of the server. */
  render(conversation: Conversation): string {
    if (this.#template === undefined) {
      throw new PlumblineError(
        'chat_template_error',
        'the model has no chat template; send the prompt as text to the completions route',
        { param: 'messages' },
      );
    }
    return this.#template.render(conversation);
  }

  /**
   * Prompt ids of a conversation and the reader of the answer to it.
   * @param mostTokens a prompt that is certainly longer is refused before it is encoded (`context_length_exceeded`).
   * Throws as `render` does.
   */
  prepare(conversation: Conversation, mostTokens?: number): PreparedChat {
    const prompt = this.render(conversation);
    const open = this.#markers.reasoning?.open;
    const inside = open !== undefined && prompt.trimEnd().endsWith(open);
    const reader = new AnswerReader(this.#markers, {
      start: !inside ? 'answer' : prompt.endsWith(open) ? 'reasoning-tag' : 'reasoning',
      readToolCalls: conversation.tools.length > 0,
      newCallId: this.#newCallId,
    });
    const limit = mostTokens === undefined ? undefined : { tokens: mostTokens, param: 'messages' };
    return { promptTokens: this.#tokenizer.encode(prompt, { limit }), reader };
  }
}
