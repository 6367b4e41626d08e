/**
 * What a chat dialect is to the chat room: a layout of prompts, the marks of reasoning and of tool calls in answers, and
 * how a block of tool calls is read. A family names its dialect as data; nothing here knows a family.
 */
import type { AnswerPart, Conversation, ToolDefinition } from '../conversation.js';
import type { CallPiece } from './call-pieces.js';
import type { WrittenToolCall } from '../tool-call.js';

/** How much the model reasons before its answer. */
export type ThinkingMode = 'off' | 'high' | 'max';

/**
 * A block of tool calls while it is written: it is given the text behind its opening mark.
 *
 * Invariant: how the text was cut into pieces never shows.
 */
export interface ToolBlock {
  push(text: string): void;
  /** malformed: no text that may follow makes it a block. */
  readonly state: 'open' | 'done' | 'malformed';
  /** Characters of the pushed text that belong to the block, its closing mark included; of a block that is done. */
  readonly end: number;
  /** Whether what is written next is a value of the caller's own, not the structure of the block. */
  readonly inPayload: boolean;
  /** Of a block that is done. */
  readonly calls: readonly WrittenToolCall[];
  /** What is certain of the calls since this was last asked, in the order in which it is written. */
  take(): readonly CallPiece[];
  /**
   * The calls of an open block that lacks nothing but closing marks, once no more text comes; undefined for any other.
   * @param cut whether the answer was cut by its token limit, so that a value may be incomplete.
   */
  complete(cut: boolean): readonly WrittenToolCall[] | undefined;
}

export interface ToolSyntax {
  /** Opens a block. */
  readonly open: string;
  /** Whether the answer is over when a block is done. */
  readonly endsAnswer: boolean;
  begin(tools: readonly ToolDefinition[]): ToolBlock;
}

export interface ChatDialect {
  readonly reasoning: { readonly open: string; readonly close: string };
  readonly tools: ToolSyntax;
  /** Added tokens that are text of an answer though the tokenizer may call them special. */
  readonly visibleTokens: readonly string[];
  /**
   * The prompt of a conversation, where the checkpoint ships no template of its own.
   * @param opensAnswer whether the part that only begins the answer is written; default true
   */
  layout(conversation: Conversation, thinking: ThinkingMode, opensAnswer?: boolean): string;
  /**
   * The transcript as the layout writes it again when the reasoning of its answers is left out, in every form of that.
   * Answers whose reasoning was not closed stay as they are.
   */
  visibleTexts(transcript: string): readonly string[];
  /**
   * What stands behind an answer, without the token that ended it, whose tool calls could not be read: the reason, as what a
   * tool says, and the opening of another answer.
   */
  correction(reason: string, thinking: ThinkingMode): string;
  /** Added tokens that end an answer beside those of the model. */
  stopTokens(thinking: ThinkingMode): readonly string[];
}

/** Reads the answer to one prompt. */
export interface AnswerPartReader {
  /** Whether a block of tool calls was malformed. */
  readonly malformed?: boolean;
  push(text: string): readonly AnswerPart[];
  finish(cut: boolean): readonly AnswerPart[];
}

/** Whether the text from `at` to its end is a proper prefix of `mark`. */
export function endsInsideMark(text: string, at: number, mark: string): boolean {
  return text.length - at < mark.length && mark.startsWith(text.slice(at));
}

/** Index of the first character from `at` that is no white space. */
export function skipSpace(text: string, at: number): number {
  while (at < text.length && ' \t\r\n'.includes(text.charAt(at))) at++;
  return at;
}

/** The text with every occurrence of `mark` begun with `escape` instead of `<`, so that it cannot end what it stands in. */
export function guardMark(text: string, mark: string, escape = '&lt;'): string {
  return text.replaceAll(mark, escape + mark.slice(1));
}

/**
 * A transcript in which the text between `open` and `close`, both included, is replaced, wherever no other turn begins between
 * them.
 * @param turns marks that begin or end a turn
 */
export function withoutBetween(
  transcript: string,
  { open, close, turns, by }: { open: string; close: string; turns: readonly string[]; by: string },
): string {
  return transcript
    .split(open)
    .map((piece, index) => {
      if (index === 0) return piece;
      const end = piece.indexOf(close);
      const reasoning = piece.slice(0, Math.max(0, end));
      if (end < 0 || turns.some((mark) => reasoning.includes(mark))) return open + piece;
      return by + piece.slice(end + close.length);
    })
    .join('');
}

/** Whether a conversation has tools in play: offered, called before, or answered. */
export function usesTools({ tools, turns }: Conversation): boolean {
  return tools.length > 0 || turns.some(({ role, toolCalls = [] }) => role === 'tool' || toolCalls.length > 0);
}

/** The function descriptions of the tools, each as the client's own JSON, key order kept. */
export function toolSchemas(tools: readonly ToolDefinition[]): string[] {
  return tools.map((tool) => JSON.stringify(tool['function'] ?? tool));
}
