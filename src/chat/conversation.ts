/**
 * A conversation as the chat rooms see it, whatever dialect it came in: turns with plain text, tools as the client's own
 * JSON objects, and further variables for the template.
 *
 * Invariant: contents are text here already; what a dialect allows beside text parts is settled where it is parsed.
 */

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, as the model or the client wrote it. */
  readonly arguments: string;
}

export interface ChatTurn {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content?: string | undefined;
  readonly reasoningContent?: string | undefined;
  readonly toolCalls?: readonly ToolCall[] | undefined;
  /** Of a tool's answer: the call that it answers. */
  readonly toolCallId?: string | undefined;
  readonly name?: string | undefined;
}

/** A function that the model may call. Key order is kept, because templates print the object. */
export type ToolDefinition = Readonly<Record<string, unknown>>;

/** What a request says of reasoning before the answer. */
export interface ThinkingWish {
  readonly enabled?: boolean | undefined;
  readonly effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | undefined;
}

export interface Conversation {
  readonly turns: readonly ChatTurn[];
  readonly tools: readonly ToolDefinition[];
  /** Further template variables (`chat_template_kwargs`), such as `enable_thinking`. */
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** undefined: the chat format does not read it. */
  readonly thinking?: ThinkingWish | undefined;
}

/** A piece of an answer, in the order of the text. */
export type AnswerPart =
  | { readonly kind: 'content'; readonly text: string }
  | { readonly kind: 'reasoning'; readonly text: string }
  /** A call begins: its arguments follow as `tool-arguments` with the same index. */
  | { readonly kind: 'tool-call'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly kind: 'tool-arguments'; readonly index: number; readonly text: string };
