/**
 * Splits the text of an answer into reasoning, content and tool calls, for dialects whose calls stand in blocks.
 *
 * Invariants: how the text was cut into pieces never shows in the result; a block is given out when it is whole, or lacks
 * nothing but closing marks at the end; a malformed one comes back as content, marks included, with everything behind it; one
 * that is cut off anywhere else is `tool_call_unterminated`. Where calls are given out as they are written, what has gone out
 * cannot come back as content: a block that turns out malformed behind the name of a call is `tool_call_malformed`. Inside reasoning only a whole block ends the reasoning; an
 * opening mark alone is text.
 */
import { PlumblineError } from '../errors.js';
import type { AnswerPart, ToolDefinition } from './conversation.js';
import type { AnswerPartReader, ChatDialect, ToolBlock } from './dialects/dialect.js';
import { partialMarks } from './partial-mark.js';
import type { WrittenToolCall } from './tool-call.js';

export interface BlockReaderOptions {
  /** Where the prompt ended: before the answer, or inside the reasoning. */
  readonly start: 'answer' | 'reasoning';
  /** Empty: blocks are not looked for, their marks are content. */
  readonly tools: readonly ToolDefinition[];
  readonly newCallId: (index: number) => string;
  /** Whether calls are given out as they are written, not when their block is whole. Default false. */
  readonly live?: boolean | undefined;
}

type State =
  /** Nothing but white space so far: reasoning may still open. */
  | 'begin'
  | 'reasoning'
  | 'content'
  | 'block'
  /** Directly behind a block: white space up to another one is dropped. */
  | 'after-block'
  /** Behind a malformed block: everything is content. */
  | 'plain';

/** What a layout may write between content and a block. */
const GAPS = ['\n\n', '\n', ''];

export class BlockAnswerReader implements AnswerPartReader {
  #state: State;
  /** Text not yet given out; of a block: everything from its opening mark on. */
  #unread = '';
  /** Of the unread text: how much of a block was pushed into it. */
  #pushed = 0;
  #block: ToolBlock | undefined;
  /** Of the block: whether anything of its calls was given out. */
  #told = false;
  #calls = 0;
  #parts: AnswerPart[] = [];

  constructor(
    private readonly dialect: ChatDialect,
    private readonly options: BlockReaderOptions,
  ) {
    this.#state = options.start === 'answer' ? 'begin' : 'reasoning';
  }

  get malformed(): boolean {
    return this.#state === 'plain';
  }

  push(text: string): readonly AnswerPart[] {
    this.#unread += text;
    return this.#read(false, false);
  }

  finish(cut: boolean): readonly AnswerPart[] {
    return this.#read(true, cut);
  }

  #read(ended: boolean, cut: boolean): readonly AnswerPart[] {
    this.#parts = [];
    while (this.#step(ended, cut));
    return this.#parts;
  }

  /** One transition; false when the unread text does not decide one yet. */
  #step(ended: boolean, cut: boolean): boolean {
    switch (this.#state) {
      case 'begin':
        return this.#begin(ended);
      case 'reasoning':
        return this.#reasoning(ended);
      case 'content':
        return this.#content(ended);
      case 'block':
        return this.#blockText(ended, cut);
      case 'after-block':
        return this.#afterBlock(ended);
      case 'plain':
        return this.#giveOut('content', 0);
    }
  }

  #begin(ended: boolean): boolean {
    const { open } = this.dialect.reasoning;
    const text = this.#unread.trimStart();
    if (text.startsWith(open)) return this.#goOn(text.slice(open.length), 'reasoning');
    if (!ended && open.startsWith(text)) return false;
    return this.#goOn(this.#unread, 'content');
  }

  #reasoning(ended: boolean): boolean {
    const { close } = this.dialect.reasoning;
    const end = this.#unread.indexOf(close);
    const opened = this.#mark();
    if (opened >= 0 && (end < 0 || opened < end)) {
      // The block counts when it is whole before the reasoning ends; until then its text is held.
      const calls = this.#wholeBlock(opened, end < 0 ? this.#unread.length : end);
      if (calls !== undefined) {
        this.#emit('reasoning', withoutGap(this.#unread.slice(0, opened)));
        this.#giveCalls(calls.calls);
        return this.#goOn(this.#unread.slice(calls.end), 'after-block');
      }
      if (end < 0 && !ended) {
        const before = withoutGap(this.#unread.slice(0, opened));
        this.#emit('reasoning', before);
        this.#unread = this.#unread.slice(before.length);
        return false;
      }
    }
    if (end < 0)
      return this.#giveOut('reasoning', ended ? 0 : partialMarks(this.#unread, [close, ...this.#openings()]));
    this.#emit('reasoning', this.#unread.slice(0, end));
    return this.#goOn(this.#unread.slice(end + close.length), 'content');
  }

  #content(ended: boolean): boolean {
    const opened = this.#mark();
    if (opened < 0) return this.#giveOut('content', ended ? 0 : partialMarks(this.#unread, this.#openings()));
    this.#emit('content', withoutGap(this.#unread.slice(0, opened)));
    this.#block = this.dialect.tools.begin(this.options.tools);
    this.#pushed = this.dialect.tools.open.length;
    this.#told = false;
    return this.#goOn(this.#unread.slice(opened), 'block');
  }

  #blockText(ended: boolean, cut: boolean): boolean {
    const block = this.#block ?? this.dialect.tools.begin(this.options.tools);
    block.push(this.#unread.slice(this.#pushed));
    this.#pushed = this.#unread.length;
    if (this.options.live === true) this.#givePieces(block);
    if (block.state === 'malformed') {
      if (this.#told) throw malformed();
      return this.#goOn(this.#unread, 'plain');
    }
    if (block.state === 'done') {
      if (!this.#told) this.#giveCalls(block.calls);
      return this.#goOn(this.#unread.slice(this.dialect.tools.open.length + block.end), 'after-block');
    }
    if (!ended) return false;
    const calls = block.complete(cut);
    if (calls === undefined) throw unterminated(cut);
    if (this.options.live === true) this.#givePieces(block);
    else this.#giveCalls(calls);
    return this.#goOn('', 'after-block');
  }

  #afterBlock(ended: boolean): boolean {
    const text = this.#unread.trimStart();
    const { open } = this.dialect.tools;
    if (text === '' || (!ended && open.startsWith(text) && text !== open)) return false;
    return this.#goOn(text.startsWith(open) ? text : this.#unread, 'content');
  }

  /** Where a block opens in the unread text, -1 where none is looked for or none does. */
  #mark(): number {
    return this.options.tools.length === 0 ? -1 : this.#unread.indexOf(this.dialect.tools.open);
  }

  #openings(): string[] {
    return this.options.tools.length === 0 ? [] : GAPS.map((gap) => gap + this.dialect.tools.open);
  }

  /** The calls of a block that opens at `from` and is done before `to`, and where it ends. */
  #wholeBlock(from: number, to: number): { calls: readonly WrittenToolCall[]; end: number } | undefined {
    const block = this.dialect.tools.begin(this.options.tools);
    const start = from + this.dialect.tools.open.length;
    block.push(this.#unread.slice(start, to));
    return block.state === 'done' ? { calls: block.calls, end: start + block.end } : undefined;
  }

  /** A piece of arguments belongs to the newest call. */
  #givePieces(block: ToolBlock): void {
    for (const piece of block.take()) {
      this.#told = true;
      if (piece.kind === 'arguments') {
        this.#parts.push({ kind: 'tool-arguments', index: this.#calls - 1, text: piece.text });
        continue;
      }
      const index = this.#calls++;
      this.#parts.push({ kind: 'tool-call', index, id: this.options.newCallId(index), name: piece.name });
    }
  }

  #giveCalls(calls: readonly WrittenToolCall[]): void {
    for (const { name, arguments: text } of calls) {
      const index = this.#calls++;
      this.#parts.push({ kind: 'tool-call', index, id: this.options.newCallId(index), name });
      this.#parts.push({ kind: 'tool-arguments', index, text });
    }
  }

  #goOn(unread: string, state: State): boolean {
    this.#unread = unread;
    this.#state = state;
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

/** The text before a block, without what a layout writes between the two. */
function withoutGap(text: string): string {
  const gap = GAPS.find((candidate) => text.endsWith(candidate)) ?? '';
  return text.slice(0, text.length - gap.length);
}

function malformed(): PlumblineError {
  const remedy = 'ask again, or without streaming, where such an answer comes back as text';
  return new PlumblineError('tool_call_malformed', `the answer has a tool call that cannot be read: ${remedy}`);
}

function unterminated(cut: boolean): PlumblineError {
  const remedy = cut ? 'its token limit cut it off there; raise max_tokens' : 'ask again';
  return new PlumblineError('tool_call_unterminated', `the answer ended inside a tool call: ${remedy}`);
}
