/**
 * Splits the text of an answer, as it comes, into reasoning, content and tool calls.
 *
 * Invariants: how the text was cut into pieces never shows in the result; nothing is lost: a tool call that is cut off or
 * that is no call comes back as content, tags included; only line breaks that belong to a tag and white space between
 * tool calls are dropped. Held back is only what may still become a tag, and a tool call until it is whole.
 */
import type { AnswerPart } from './conversation.js';
import { partialMarks } from './partial-mark.js';
import { parseToolCall } from './tool-call.js';

/** The tags of a chat format; families hand them over as data. */
export interface AnswerMarkers {
  readonly reasoning?:
    | {
        readonly open: string;
        readonly close: string;
        /** What the template writes between the tags and their neighbours; removed where it is there. */
        readonly afterOpen: string;
        readonly beforeClose: string;
        readonly afterClose: string;
      }
    | undefined;
  readonly toolCall?: { readonly open: string; readonly close: string } | undefined;
}

/** ChatML with `<think>` and JSON in `<tool_call>`. */
export const THINK_AND_TOOL_CALL_TAGS: AnswerMarkers = {
  reasoning: { open: '<think>', close: '</think>', afterOpen: '\n', beforeClose: '\n', afterClose: '\n\n' },
  toolCall: { open: '<tool_call>', close: '</tool_call>' },
};

export interface AnswerReaderOptions {
  /** Where the prompt ended: before the answer, directly behind the tag that opens the reasoning, or inside it. */
  readonly start: 'answer' | 'reasoning-tag' | 'reasoning';
  /** Whether tool calls are looked for; without tools in the request their tags are content. */
  readonly readToolCalls: boolean;
  /** Makes the id of a call. */
  readonly newCallId: (index: number) => string;
}

/** What the unread text is a part of. */
type State =
  /** Nothing but white space so far: reasoning may still open. */
  | 'begin'
  | 'reasoning-begin'
  | 'reasoning'
  | 'reasoning-end'
  | 'content'
  /** Directly behind a tool call: white space up to another one is dropped. */
  | 'after-call'
  | 'call';

export class AnswerReader {
  readonly #markers: AnswerMarkers;
  readonly #options: AnswerReaderOptions;
  #state: State;
  /** Text not yet given out; of a call: what follows its opening tag. */
  #unread = '';
  #calls = 0;
  #parts: AnswerPart[] = [];
  readonly #scan = new CallScan();

  constructor(markers: AnswerMarkers, options: AnswerReaderOptions) {
    this.#markers = { reasoning: markers.reasoning, toolCall: options.readToolCalls ? markers.toolCall : undefined };
    this.#options = options;
    const starts = { answer: 'begin', 'reasoning-tag': 'reasoning-begin', reasoning: 'reasoning' } as const;
    this.#state = markers.reasoning === undefined ? 'content' : starts[options.start];
  }

  push(text: string): readonly AnswerPart[] {
    this.#unread += text;
    return this.#read(false);
  }

  /** What is still held back, once no more text comes. */
  finish(): readonly AnswerPart[] {
    return this.#read(true);
  }

  #read(ended: boolean): readonly AnswerPart[] {
    this.#parts = [];
    while (this.#step(ended));
    return this.#parts;
  }

  /** One transition; false when the unread text does not decide one yet. */
  #step(ended: boolean): boolean {
    switch (this.#state) {
      case 'begin':
        return this.#begin(ended);
      case 'reasoning-begin':
        return this.#dropPadding(this.#markers.reasoning?.afterOpen ?? '', 'reasoning', ended);
      case 'reasoning':
        return this.#reasoning(ended);
      case 'reasoning-end':
        return this.#dropPadding(this.#markers.reasoning?.afterClose ?? '', 'content', ended);
      case 'content':
        return this.#content(ended);
      case 'after-call':
        return this.#afterCall(ended);
      case 'call':
        return this.#call(ended);
    }
  }

  #begin(ended: boolean): boolean {
    const open = this.#markers.reasoning?.open ?? '';
    const text = this.#unread.trimStart();
    if (text.startsWith(open)) return this.#goOn(text.slice(open.length), 'reasoning-begin');
    if (!ended && open.startsWith(text)) return false;
    return this.#goOn(this.#unread, 'content');
  }

  /** Removes as much of `padding` as the unread text begins with. */
  #dropPadding(padding: string, next: State, ended: boolean): boolean {
    const text = this.#unread;
    let shared = 0;
    while (shared < padding.length && text[shared] === padding[shared]) shared++;
    if (!ended && shared === text.length && shared < padding.length) return false;
    return this.#goOn(text.slice(shared), next);
  }

  #reasoning(ended: boolean): boolean {
    const { close = '', beforeClose = '' } = this.#markers.reasoning ?? {};
    const at = this.#unread.indexOf(close);
    if (at < 0) return this.#giveOut('reasoning', ended ? 0 : partialMarks(this.#unread, [close, beforeClose + close]));
    const text = this.#unread.slice(0, at);
    this.#emit('reasoning', text.endsWith(beforeClose) ? text.slice(0, text.length - beforeClose.length) : text);
    return this.#goOn(this.#unread.slice(at + close.length), 'reasoning-end');
  }

  #content(ended: boolean): boolean {
    const open = this.#markers.toolCall?.open;
    const at = open === undefined ? -1 : this.#unread.indexOf(open);
    if (open === undefined || at < 0)
      return this.#giveOut('content', ended || open === undefined ? 0 : partialMarks(this.#unread, [open]));
    this.#emit('content', this.#unread.slice(0, at));
    return this.#goOn(this.#unread.slice(at + open.length), 'call');
  }

  #afterCall(ended: boolean): boolean {
    const text = this.#unread.trimStart();
    if (text === '') return false;
    const open = this.#markers.toolCall?.open ?? '';
    if (text.startsWith(open)) return this.#goOn(text, 'content');
    if (!ended && open.startsWith(text)) return false;
    return this.#goOn(this.#unread, 'content');
  }

  #call(ended: boolean): boolean {
    const { open = '', close = '' } = this.#markers.toolCall ?? {};
    let end = this.#scan.closingTag(this.#unread, close);
    if (end < 0) {
      if (!ended) return false;
      // Never closed outside a string: not a call. Its first closing tag ends it, so that what follows is still read.
      end = this.#unread.indexOf(close);
      if (end < 0) {
        this.#emit('content', open + this.#unread);
        return this.#goOn('', 'content');
      }
    }
    const written = this.#unread.slice(0, end);
    const rest = this.#unread.slice(end + close.length);
    const call = parseToolCall(written);
    if (call === undefined) {
      this.#emit('content', open + written + close);
      return this.#goOn(rest, 'content');
    }
    const index = this.#calls++;
    this.#parts.push({ kind: 'tool-call', index, id: this.#options.newCallId(index), name: call.name });
    this.#parts.push({ kind: 'tool-arguments', index, text: call.arguments });
    return this.#goOn(rest, 'after-call');
  }

  #goOn(unread: string, state: State): boolean {
    this.#unread = unread;
    this.#state = state;
    if (state === 'call') this.#scan.reset();
    return true;
  }

  /** Gives out all of the unread text but its last `held` characters; there is nothing more to decide then. */
  #giveOut(kind: 'content' | 'reasoning', held: number): false {
    const end = this.#unread.length - held;
    this.#emit(kind, this.#unread.slice(0, end));
    this.#unread = this.#unread.slice(end);
    return false;
  }

  #emit(kind: 'content' | 'reasoning', text: string): void {
    if (text !== '') this.#parts.push({ kind, text });
  }
}

/** Finds the closing tag of a call that stands outside JSON strings; goes on where it stopped when more text came. */
class CallScan {
  #at = 0;
  #inString = false;

  reset(): void {
    this.#at = 0;
    this.#inString = false;
  }

  /** Index of the tag in `text`, -1 when it is not there yet. `text` only grows between two resets. */
  closingTag(text: string, close: string): number {
    for (; this.#at < text.length; this.#at++) {
      const character = text[this.#at];
      if (this.#inString) {
        // Steps over the escaped character, also when that is still to come.
        if (character === '\\') this.#at++;
        else if (character === '"') this.#inString = false;
      } else if (character === '"') this.#inString = true;
      else if (text.startsWith(close, this.#at)) return this.#at;
      else if (close.startsWith(text.slice(this.#at))) return -1;
    }
    return -1;
  }
}
