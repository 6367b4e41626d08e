/**
 * One tool call as a name and pairs: `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`.
 *
 * Invariants: a value ends at its closing tag alone; it is a string where the tool's schema says so, else JSON where it is
 * JSON, else a string, because the text itself does not tell; pairs keep their order.
 */
import type { ToolDefinition } from '../conversation.js';
import type { WrittenToolCall } from '../tool-call.js';
import { partialMark } from '../partial-mark.js';
import { CallPieces, type CallPiece } from './call-pieces.js';
import { endsInsideMark, guardMark, skipSpace, type ToolBlock } from './dialect.js';
import { argumentsText, isJson } from './dsml-block.js';

export const PAIRS = {
  open: '<tool_call>',
  close: '</tool_call>',
  keyOpen: '<arg_key>',
  keyClose: '</arg_key>',
  valueOpen: '<arg_value>',
  valueClose: '</arg_value>',
} as const;

type Mode = 'name' | 'between' | 'key' | 'gap' | 'value';

export class ArgumentPairsBlock implements ToolBlock {
  state: ToolBlock['state'] = 'open';
  end = 0;
  readonly calls: WrittenToolCall[] = [];
  readonly #pieces = new CallPieces();
  #text = '';
  #at = 0;
  #mode: Mode = 'name';
  #name = '';
  #key = '';
  #valueStart = 0;
  readonly #members = new Map<string, string>();

  constructor(private readonly tools: readonly ToolDefinition[]) {}

  push(text: string): void {
    this.#text += text;
    while (this.state === 'open' && this.#step());
  }

  get inPayload(): boolean {
    const isValue = this.state === 'open' && this.#mode === 'value';
    return isValue && partialMark(this.#text.slice(this.#at), PAIRS.valueClose, 2) === 0;
  }

  take(): readonly CallPiece[] {
    return this.#pieces.take();
  }

  complete(cut: boolean): readonly WrittenToolCall[] | undefined {
    const text = this.#text;
    if (this.#mode === 'value') {
      const value = text.slice(this.#valueStart);
      const held = partialMark(value, PAIRS.valueClose);
      if (cut && held < 2) return undefined;
      this.#endValue(value.slice(0, value.length - held));
    } else if (this.#mode === 'between') {
      const at = skipSpace(text, this.#at);
      if (at < text.length && !endsInsideMark(text, at, PAIRS.close)) return undefined;
    } else if (this.#mode === 'name' && !cut) {
      const held = partialMark(text, PAIRS.close);
      if (!this.#takeName(text.slice(0, text.length - held))) return undefined;
    } else return undefined;
    this.#endCall();
    return this.calls;
  }

  #step(): boolean {
    switch (this.#mode) {
      case 'name':
        return this.#readName();
      case 'between':
        return this.#between();
      case 'key':
        return this.#until(PAIRS.keyClose, 'gap', (key) => (this.#key = key.trim()));
      case 'gap':
        return this.#openValue();
      case 'value':
        return this.#readValue();
    }
  }

  #readName(): boolean {
    const tag = this.#text.indexOf('<', this.#at);
    if (tag < 0) return false;
    const marks = [PAIRS.keyOpen, PAIRS.close];
    if (marks.some((mark) => endsInsideMark(this.#text, tag, mark))) return false;
    if (!marks.some((mark) => this.#text.startsWith(mark, tag))) return this.#fail();
    if (!this.#takeName(this.#text.slice(0, tag))) return this.#fail();
    this.#at = tag;
    this.#mode = 'between';
    return true;
  }

  #takeName(text: string): boolean {
    this.#name = text.trim();
    if (!/^[^\s<>]+$/.test(this.#name)) return false;
    this.#pieces.open(this.#name);
    return true;
  }

  #between(): boolean {
    const at = skipSpace(this.#text, this.#at);
    if (this.#text.startsWith(PAIRS.close, at)) {
      this.#endCall();
      this.end = at + PAIRS.close.length;
      this.state = 'done';
      return false;
    }
    if (endsInsideMark(this.#text, at, PAIRS.close)) return false;
    return this.#expect(PAIRS.keyOpen, 'key');
  }

  /** Only of a value that is a string by its schema it is known before its end what it is. */
  #openValue(): boolean {
    if (!this.#expect(PAIRS.valueOpen, 'value')) return false;
    if (this.#isString()) this.#pieces.openString(this.#key, this.#valueStart);
    return true;
  }

  #readValue(): boolean {
    if (this.#until(PAIRS.valueClose, 'between', (value) => this.#endValue(value))) return true;
    this.#pieces.string(this.#text, PAIRS.valueClose);
    return false;
  }

  #isString(): boolean {
    return parameterType(this.tools, this.#name, this.#key) === 'string';
  }

  /** A mark that must stand here, behind white space. */
  #expect(mark: string, next: Mode): boolean {
    const at = skipSpace(this.#text, this.#at);
    if (endsInsideMark(this.#text, at, mark)) return false;
    if (!this.#text.startsWith(mark, at)) return this.#fail();
    this.#valueStart = this.#at = at + mark.length;
    this.#mode = next;
    return true;
  }

  /** Text up to a mark. */
  #until(mark: string, next: Mode, take: (text: string) => void): boolean {
    const end = this.#text.indexOf(mark, this.#at);
    if (end < 0) {
      this.#at = Math.max(this.#at, this.#text.length - mark.length + 1);
      return false;
    }
    take(this.#text.slice(this.#valueStart, end));
    this.#at = end + mark.length;
    this.#mode = next;
    return true;
  }

  #endValue(value: string): void {
    const plain = value.replaceAll(guardMark(PAIRS.valueClose, PAIRS.valueClose), PAIRS.valueClose);
    const isString = this.#isString() || !isJson(plain);
    const source = isString ? JSON.stringify(plain) : plain.trim();
    this.#members.set(this.#key, source);
    if (this.#pieces.inString) this.#pieces.closeString(this.#text, this.#valueStart + value.length, PAIRS.valueClose);
    else this.#pieces.member(this.#key, source);
  }

  #endCall(): void {
    this.#pieces.close();
    this.calls.push({ name: this.#name, arguments: argumentsText(this.#members) });
  }

  #fail(): false {
    this.state = 'malformed';
    return false;
  }
}

/** `type` of a parameter in the schema of its tool. */
function parameterType(tools: readonly ToolDefinition[], tool: string, parameter: string): unknown {
  const definition = tools.map((item) => item['function']).find((item) => at(item, 'name') === tool);
  return at(at(at(at(definition, 'parameters'), 'properties'), parameter), 'type');
}

function at(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? (value as Record<string, unknown>)[key]
    : undefined;
}
