/**
 * A block of tool calls in DSML: `<｜DSML｜invoke name="f">`, in it `<｜DSML｜parameter name="k" string="true">text` or JSON
 * with string="false", everything closed by its tag, white space between tags.
 *
 * Invariants: a string ends at the closing tag of its parameter alone and is taken as it stands, but for an escaped closing
 * tag in it; other values must be JSON and keep their source; arguments stand in the order in which they were written.
 * A missing closing tag of a call inside the block is forgiven, as one at its end is.
 */
import type { WrittenToolCall } from '../tool-call.js';
import { partialMark } from '../partial-mark.js';
import { CallPieces, type CallPiece } from './call-pieces.js';
import { endsInsideMark, guardMark, skipSpace, type ToolBlock } from './dialect.js';

const NAME = '｜DSML｜';
export const DSML = {
  token: NAME,
  open: `<${NAME}tool_calls>`,
  close: `</${NAME}tool_calls>`,
  invokeOpen: `<${NAME}invoke`,
  invokeClose: `</${NAME}invoke>`,
  parameterOpen: `<${NAME}parameter`,
  parameterClose: `</${NAME}parameter>`,
} as const;

const ENTITIES: readonly (readonly [string, string])[] = [
  ['&lt;', '<'],
  ['&gt;', '>'],
  ['&quot;', '"'],
  ['&amp;', '&'],
];

export function escapeAttribute(text: string): string {
  return [...ENTITIES].reverse().reduce((escaped, [entity, plain]) => escaped.replaceAll(plain, entity), text);
}

const unescapeAttribute = (text: string): string =>
  ENTITIES.reduce((plain, [entity, character]) => plain.replaceAll(entity, character), text);

type Mode = 'structure' | 'string' | 'json';

interface OpenCall {
  readonly name: string;
  readonly members: Map<string, string>;
}

export class DsmlBlock implements ToolBlock {
  state: ToolBlock['state'] = 'open';
  end = 0;
  readonly calls: WrittenToolCall[] = [];
  readonly #pieces = new CallPieces();
  #text = '';
  #at = 0;
  #mode: Mode = 'structure';
  #call: OpenCall | undefined;
  #parameter = '';
  #valueStart = 0;
  #inJsonString = false;
  #escaped = false;

  push(text: string): void {
    this.#text += text;
    while (this.state === 'open' && this.#step());
  }

  get inPayload(): boolean {
    if (this.state !== 'open') return false;
    if (this.#mode === 'json') return this.#inJsonString;
    // A first character of a closing tag may be anything; from two on it is the tag.
    return this.#mode === 'string' && partialMark(this.#text.slice(this.#at), DSML.parameterClose, 2) === 0;
  }

  take(): readonly CallPiece[] {
    return this.#pieces.take();
  }

  complete(cut: boolean): readonly WrittenToolCall[] | undefined {
    if (this.#mode === 'structure') {
      const at = skipSpace(this.#text, this.#at);
      const marks = [DSML.close, DSML.invokeClose];
      if (at < this.#text.length && !marks.some((mark) => endsInsideMark(this.#text, at, mark))) return undefined;
    } else {
      const value = this.#text.slice(this.#valueStart);
      const held = this.#mode === 'json' && this.#inJsonString ? 0 : partialMark(value, DSML.parameterClose);
      // Two characters of the closing tag prove that the value was over; without them a cut may have shortened it.
      if (cut && held < 2) return undefined;
      if (!this.#endValue(value.slice(0, value.length - held))) return undefined;
    }
    this.#endCall();
    return this.calls.length > 0 ? this.calls : undefined;
  }

  /** One transition; false when the text does not decide one yet. */
  #step(): boolean {
    switch (this.#mode) {
      case 'structure':
        return this.#structure();
      case 'string':
        return this.#string();
      case 'json':
        return this.#json();
    }
  }

  #structure(): boolean {
    const text = this.#text;
    const at = (this.#at = skipSpace(text, this.#at));
    if (at === text.length) return false;
    if (text.startsWith(DSML.close, at)) {
      this.#endCall();
      this.end = at + DSML.close.length;
      this.state = this.calls.length > 0 ? 'done' : 'malformed';
      return false;
    }
    if (text.startsWith(DSML.invokeClose, at)) {
      if (this.#call === undefined) return this.#fail();
      this.#endCall();
      this.#at = at + DSML.invokeClose.length;
      return true;
    }
    if (text.startsWith(DSML.invokeOpen, at)) return this.#openCall(at);
    if (text.startsWith(DSML.parameterOpen, at)) return this.#openParameter(at);
    return Object.values(DSML).some((mark) => endsInsideMark(text, at, mark)) ? false : this.#fail();
  }

  #openCall(at: number): boolean {
    const tagEnd = this.#text.indexOf('>', at);
    if (tagEnd < 0) return false;
    const name = attribute(this.#text.slice(at, tagEnd), 'name');
    if (name === undefined || name === '') return this.#fail();
    this.#endCall();
    this.#call = { name, members: new Map() };
    this.#pieces.open(name);
    this.#at = tagEnd + 1;
    return true;
  }

  #openParameter(at: number): boolean {
    const tagEnd = this.#text.indexOf('>', at);
    if (tagEnd < 0) return false;
    const tag = this.#text.slice(at, tagEnd);
    const name = attribute(tag, 'name');
    if (name === undefined || this.#call === undefined) return this.#fail();
    this.#parameter = name;
    this.#mode = attribute(tag, 'string') === 'true' ? 'string' : 'json';
    this.#inJsonString = false;
    this.#escaped = false;
    this.#valueStart = this.#at = tagEnd + 1;
    if (this.#mode === 'string') this.#pieces.openString(name, this.#at);
    return true;
  }

  #string(): boolean {
    const close = this.#text.indexOf(DSML.parameterClose, this.#at);
    if (close < 0) {
      this.#pieces.string(this.#text, DSML.parameterClose);
      this.#at = Math.max(this.#at, this.#text.length - DSML.parameterClose.length + 1);
      return false;
    }
    return this.#closeParameter(close);
  }

  #json(): boolean {
    for (; this.#at < this.#text.length; this.#at++) {
      const character = this.#text[this.#at];
      if (this.#inJsonString) {
        if (this.#escaped) this.#escaped = false;
        else if (character === '\\') this.#escaped = true;
        else if (character === '"') this.#inJsonString = false;
      } else if (character === '"') this.#inJsonString = true;
      else if (this.#text.startsWith(DSML.parameterClose, this.#at)) return this.#closeParameter(this.#at);
      else if (endsInsideMark(this.#text, this.#at, DSML.parameterClose)) return false;
    }
    return false;
  }

  #closeParameter(close: number): boolean {
    if (!this.#endValue(this.#text.slice(this.#valueStart, close))) return this.#fail();
    this.#at = close + DSML.parameterClose.length;
    return true;
  }

  /** Takes a value into the call; false when it is no value of its kind. */
  #endValue(value: string): boolean {
    const isString = this.#mode === 'string';
    this.#mode = 'structure';
    const escapedClose = guardMark(DSML.parameterClose, DSML.parameterClose);
    const source = isString ? JSON.stringify(value.replaceAll(escapedClose, DSML.parameterClose)) : value.trim();
    if (!isString && !isJson(source)) return false;
    if (isString) this.#pieces.closeString(this.#text, this.#valueStart + value.length, DSML.parameterClose);
    else this.#pieces.member(this.#parameter, source);
    this.#call?.members.set(this.#parameter, source);
    return true;
  }

  #endCall(): void {
    if (this.#call === undefined) return;
    this.calls.push({ name: this.#call.name, arguments: argumentsText(this.#call.members) });
    this.#pieces.close();
    this.#call = undefined;
  }

  #fail(): false {
    this.state = 'malformed';
    return false;
  }
}

/** A JSON object out of names and the sources of their values. */
export function argumentsText(members: ReadonlyMap<string, string>): string {
  return `{${Array.from(members, ([name, source]) => `${JSON.stringify(name)}: ${source}`).join(', ')}}`;
}

export function isJson(source: string): boolean {
  try {
    JSON.parse(source);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

function attribute(tag: string, name: 'name' | 'string'): string | undefined {
  const value = (name === 'name' ? /\sname="([^"]*)"/ : /\sstring="([^"]*)"/).exec(tag)?.[1];
  return value === undefined ? undefined : unescapeAttribute(value);
}
