/**
 * A JSON reader for files that somebody else made and a model's numbers depend on. RFC 8259, with the doors shut that
 * `JSON.parse` leaves open: a repeated key is an error instead of the last one winning, nesting has a limit, bytes must
 * be UTF-8, and numbers must be finite.
 *
 * Invariants: objects have no prototype, so a key such as `__proto__` is data; every failure goes through the caller's
 * `fail`, which names the file.
 */

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;

export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** Ends the parse with the caller's own error; `why` is a clause without the file's name. */
export type JsonFailure = (why: string) => never;

/** Deeper than any config or header that exists, shallow enough for the call stack. */
const MAX_DEPTH = 64;

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const ESCAPED = /["\\]|[\u0000-\u001f]/g;

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isJsonArray(value: JsonValue | undefined): value is readonly JsonValue[] {
  return Array.isArray(value);
}

/** Parse a whole document. `bytes` must be UTF-8 without a byte order mark. */
export function parseStrictJson(bytes: Uint8Array, fail: JsonFailure): JsonValue {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return fail('it is not UTF-8');
  }
  return new Parser(text, fail).document();
}

/** A name from a file as an error message may show it: quoted, escaped, and not longer than a line. */
export function quoteName(name: string): string {
  return JSON.stringify(name.length > 120 ? `${name.slice(0, 117)}...` : name);
}

/** A value from a file as an error message may show it. */
export function briefJson(value: JsonValue | undefined): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

class Parser {
  private at = 0;

  constructor(
    private readonly text: string,
    private readonly failWith: JsonFailure,
  ) {}

  document(): JsonValue {
    const value = this.value(0);
    this.skipSpace();
    if (this.at < this.text.length) this.fail('unexpected text after the end of the document');
    return value;
  }

  private fail(what: string): never {
    return this.failWith(`${what} at character ${this.at}`);
  }

  private skipSpace(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.at += 1;
    }
  }

  private value(depth: number): JsonValue {
    if (depth > MAX_DEPTH) this.fail(`nesting deeper than ${MAX_DEPTH}`);
    this.skipSpace();
    switch (this.text[this.at]) {
      case undefined:
        return this.fail('unexpected end');
      case '{':
        return this.object(depth);
      case '[':
        return this.array(depth);
      case '"':
        return this.string();
      case 't':
        return this.word('true', true);
      case 'f':
        return this.word('false', false);
      case 'n':
        return this.word('null', null);
      default:
        return this.number();
    }
  }

  private object(depth: number): JsonObject {
    const object = Object.create(null) as Record<string, JsonValue>;
    this.at += 1;
    this.skipSpace();
    if (this.take('}')) return object;
    do {
      this.skipSpace();
      if (this.text[this.at] !== '"') this.fail('a key was expected');
      const key = this.string();
      if (key in object) this.fail(`the key ${quoteName(key)} occurs twice,`);
      this.skipSpace();
      if (!this.take(':')) this.fail(`':' was expected after the key ${quoteName(key)}`);
      object[key] = this.value(depth + 1);
      this.skipSpace();
    } while (this.take(','));
    if (!this.take('}'))
      this.fail(this.at < this.text.length ? "',' or '}' was expected" : 'unexpected end of an object');
    return object;
  }

  private array(depth: number): JsonValue[] {
    const array: JsonValue[] = [];
    this.at += 1;
    this.skipSpace();
    if (this.take(']')) return array;
    do {
      array.push(this.value(depth + 1));
      this.skipSpace();
    } while (this.take(','));
    if (!this.take(']'))
      this.fail(this.at < this.text.length ? "',' or ']' was expected" : 'unexpected end of an array');
    return array;
  }

  private take(char: string): boolean {
    if (this.text[this.at] !== char) return false;
    this.at += 1;
    return true;
  }

  private string(): string {
    const start = this.at;
    let end = start + 1;
    for (;;) {
      ESCAPED.lastIndex = end;
      const found = ESCAPED.exec(this.text);
      if (found === null) return this.fail('a string without an end');
      end = found.index + 1;
      if (found[0] === '"') break;
      this.at = found.index;
      if (found[0] !== '\\') this.fail('a control character in a string');
      end += 1;
    }
    this.at = start;
    const literal = this.text.slice(start, end);
    if (!literal.includes('\\')) {
      this.at = end;
      return literal.slice(1, -1);
    }
    let decoded: string;
    try {
      decoded = JSON.parse(literal) as string;
    } catch {
      return this.fail('a wrong escape in the string');
    }
    this.at = end;
    return decoded;
  }

  private number(): number {
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text);
    if (found === null)
      return this.fail(`unexpected ${quoteName(/^\w+|./su.exec(this.text.slice(this.at, this.at + 40))?.[0] ?? '')}`);
    const value = Number(found[0]);
    if (!Number.isFinite(value)) this.fail('a number out of range');
    this.at += found[0].length;
    return value;
  }

  private word<T>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) this.fail('an unknown word');
    this.at += word.length;
    return value;
  }
}
