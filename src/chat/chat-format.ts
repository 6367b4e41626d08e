/**
 * The chat side of a model: conversation to prompt ids, and a reader for the answer to it.
 *
 * Invariants: the template writes the markers of turns, so the rendered prompt is encoded with added tokens recognised
 * and with nothing added around it; a reader starts where the prompt ended, inside the reasoning or not, as the text of
 * the prompt itself says. Where an earlier answer is put back with the tokens that were generated, they stand for exactly the
 * text up to the mark that ends its turn, and what follows is encoded as it is.
 */
import { randomUUID } from 'node:crypto';
import type { Tokenizer } from '../tokens/tokenizer.js';
import { AnswerReader, THINK_AND_TOOL_CALL_TAGS, type AnswerMarkers } from './answer-reader.js';
import type { ChatTurn, Conversation } from './conversation.js';
import type { CommittedTurns, GivenAnswer, KnownHistory, SpliceDeclined } from './history-splice.js';
import { PlumblineError } from '../errors.js';
import { ChatTemplate, readTemplateSources, type ChatTemplateOptions } from './template.js';

export interface PreparedChat {
  readonly promptTokens: readonly number[];
  readonly reader: AnswerReader;
  /** So many tokens will begin the prompt of the next turn, too, whatever the answer is. */
  readonly stablePrefix: number;
  /** Earlier answers that stand in the prompt with the tokens that were generated, and why the latest does not. */
  readonly splicedTurns: number;
  readonly spliceDeclined?: SpliceDeclined | undefined;
  /** Remembers the answer, so that it can be put back. Does nothing for a conversation without a session's name. */
  remember(answer: GivenAnswer, turnTokens: Int32Array): void;
}

/** Whose conversation it is, and what was answered in it. */
export interface ChatMemory {
  readonly session: string | undefined;
  readonly committed: CommittedTurns;
  /** Ids that end a turn, as the template writes them. */
  readonly turnEnds: readonly { readonly id: number; readonly text: string }[];
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
   * @param memory absent: every turn is encoded anew
   * Throws as `render` does.
   */
  prepare(conversation: Conversation, mostTokens?: number, memory?: ChatMemory): PreparedChat {
    const prompt = this.render(conversation);
    const history = memory?.committed.follow(memory.session, conversation);
    const splice =
      memory && history?.last ? this.#splice(conversation, prompt, history.last, memory.turnEnds) : undefined;
    const from = typeof splice === 'object' ? splice : { head: [], tail: prompt };
    const open = this.#markers.reasoning?.open;
    const inside = open !== undefined && prompt.trimEnd().endsWith(open);
    const reader = new AnswerReader(this.#markers, {
      start: !inside ? 'answer' : prompt.endsWith(open) ? 'reasoning-tag' : 'reasoning',
      readToolCalls: conversation.tools.length > 0,
      newCallId: this.#newCallId,
    });
    const limit = mostTokens === undefined ? undefined : { tokens: mostTokens, param: 'messages' };
    const tail = this.#tokenizer.encode(from.tail, { limit });
    return {
      promptTokens: [...from.head, ...tail],
      reader,
      stablePrefix: from.head.length + this.#stablePart(conversation, prompt, tail),
      splicedTurns: typeof splice === 'object' ? (history?.spliced ?? 0) : 0,
      spliceDeclined: typeof splice === 'string' ? splice : history?.declined,
      remember: (answer, turnTokens) => {
        const { session, committed } = memory ?? {};
        if (session !== undefined && history) committed?.remember(session, history.key, answer, turnTokens);
      },
    };
  }

  /**
   * The tokens up to the end of an earlier answer, and the text behind it. Where that text begins is found by rendering the
   * conversation with a word in the place of the answer that stands nowhere else.
   */
  #splice(
    conversation: Conversation,
    prompt: string,
    { index, tokens }: NonNullable<KnownHistory['last']>,
    turnEnds: ChatMemory['turnEnds'],
  ): { readonly head: readonly number[]; readonly tail: string } | SpliceDeclined {
    const mark = `answer${randomUUID().replaceAll('-', '')}`;
    const turns = conversation.turns.map((turn, i): ChatTurn =>
      i === index ? { role: turn.role, content: mark } : turn,
    );
    const pieces = this.render({ ...conversation, turns }).split(mark);
    const tail = pieces[1];
    if (pieces.length !== 2 || tail === undefined || !prompt.endsWith(tail)) return 'template_rewrites';
    const end = turnEnds.find(({ text }) => tail.startsWith(text));
    if (end === undefined) return 'template_rewrites';
    const last = tokens.at(-1);
    if (last === end.id) return { head: [...tokens], tail: tail.slice(end.text.length) };
    // A turn that was cut at its length is ended by the template.
    return turnEnds.some(({ id }) => id === last) ? 'turn_end_differs' : { head: [...tokens], tail };
  }

  /** The conversation without the beginning of an answer; undefined when the template refuses to end so. */
  #closedText(conversation: Conversation): string | undefined {
    try {
      return this.#template?.render(conversation, false);
    } catch (error) {
      if (error instanceof PlumblineError && error.code === 'chat_template_error') return undefined;
      throw error;
    }
  }

  /** How many of the prompt's last tokens stand before the part that only begins the answer. */
  #stablePart(conversation: Conversation, prompt: string, tail: readonly number[]): number {
    const stable = this.#closedText(conversation);
    if (stable === undefined) return tail.length;
    let shared = 0;
    while (shared < stable.length && stable[shared] === prompt[shared]) shared++;
    const opening = this.#tokenizer.encode(prompt.slice(shared));
    const count = Math.max(0, tail.length - opening.length);
    if (opening.every((id, i) => tail[count + i] === id)) return count;
    // The cut goes through a token: as many as the part before it has in common.
    const before = this.#tokenizer.encode(prompt.slice(0, shared));
    let same = 0;
    while (same < before.length && before[same] === tail[same]) same++;
    return same;
  }
}
