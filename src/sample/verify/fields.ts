/**
 * Typed access to one line of a fixture file.
 *
 * Invariants: a missing field or one of another type is `fixture_invalid` with file, line and field name, never a guess;
 * encodings are those of the sampler fixtures: float32 rows as base64 (little endian), float64 as 16 hex digits of its
 * bits, arrays of them run together or as a list.
 */
import { PlumblineError } from '../../errors.js';

type Shape = 'object' | 'text' | 'number' | 'integer' | 'flag' | 'list';

const HEX_DOUBLE = /^(?:[0-9a-f]{16})*$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

const doubleScratch = new DataView(new ArrayBuffer(8));

function doubleOf(hex: string): number {
  doubleScratch.setUint32(0, Number.parseInt(hex.slice(0, 8), 16));
  doubleScratch.setUint32(4, Number.parseInt(hex.slice(8), 16));
  return doubleScratch.getFloat64(0);
}

export class Fields {
  /**
   * @param where `file:line`, and the path to this object inside the line.
   */
  private constructor(
    private readonly value: Readonly<Record<string, unknown>>,
    readonly where: string,
  ) {}

  static parse(text: string, where: string): Fields {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (cause) {
      throw new PlumblineError('fixture_invalid', `${where}: not JSON`, { cause });
    }
    return Fields.of(value, where);
  }

  private static of(value: unknown, where: string): Fields {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new PlumblineError('fixture_invalid', `${where}: must be a JSON object`);
    }
    return new Fields(value as Record<string, unknown>, where);
  }

  /** Whether the field is there and not null. */
  has(key: string): boolean {
    return this.value[key] !== undefined && this.value[key] !== null;
  }

  isText(key: string): boolean {
    return typeof this.value[key] === 'string';
  }

  isNumber(key: string): boolean {
    return typeof this.value[key] === 'number';
  }

  refuse(key: string, rule: string): never {
    throw new PlumblineError('fixture_invalid', `${this.where}: field "${key}" must be ${rule}`);
  }

  object(key: string): Fields {
    return Fields.of(this.value[key], `${this.where}: ${key}`);
  }

  text(key: string): string {
    return this.typed(key, 'text', (value) => typeof value === 'string');
  }

  number(key: string): number {
    return this.typed(key, 'number', (value) => typeof value === 'number');
  }

  integer(key: string): number {
    return this.typed(key, 'integer', Number.isSafeInteger);
  }

  flag(key: string): boolean {
    return this.typed(key, 'flag', (value) => typeof value === 'boolean');
  }

  /** A list of anything. */
  list(key: string): unknown[] {
    return this.listOf<unknown>(key, 'values', () => true);
  }

  integers(key: string): number[] {
    return this.listOf(key, 'integers', Number.isSafeInteger);
  }

  texts(key: string): string[] {
    return this.listOf(key, 'strings', (value) => typeof value === 'string');
  }

  objects(key: string): Fields[] {
    return this.listOf<unknown>(key, 'objects', () => true).map((value, i) =>
      Fields.of(value, `${this.where}: ${key}[${i}]`),
    );
  }

  /** A list of objects and nulls. */
  optionalObjects(key: string): (Fields | undefined)[] {
    return this.listOf<unknown>(key, 'objects and nulls', () => true).map((value, i) =>
      value === null ? undefined : Fields.of(value, `${this.where}: ${key}[${i}]`),
    );
  }

  /** A list of lists, each read by `read` from a synthetic object with the one field `item`. */
  lists<T>(key: string, read: (item: Fields) => T): T[] {
    return this.listOf<unknown>(key, 'lists', () => true).map((item, i) =>
      read(new Fields({ item }, `${this.where}: ${key}[${i}]`)),
    );
  }

  /** A decimal string of any size. */
  bigint(key: string): bigint {
    const text = this.text(key);
    if (!/^\d+$/.test(text)) this.refuse(key, 'a decimal string');
    return BigInt(text);
  }

  /** Base64 of little-endian float32. */
  floats(key: string): Float32Array {
    const text = this.text(key);
    const bytes = Buffer.from(text, 'base64');
    if (!BASE64.test(text) || bytes.length % 4 !== 0) this.refuse(key, 'base64 of float32');
    const copy = new Uint8Array(bytes);
    return new Float32Array(copy.buffer, 0, copy.length / 4);
  }

  /** One float64 as 16 hex digits. */
  double(key: string): number {
    const doubles = this.doubles(key);
    if (doubles.length !== 1) this.refuse(key, 'the 16 hex digits of one float64');
    return doubles[0]!;
  }

  /** A list of float64 values of 16 hex digits each, and nulls. */
  optionalDoubles(key: string): (number | undefined)[] {
    return this.list(key).map((item, i) =>
      item === null ? undefined : new Fields({ item }, `${this.where}: ${key}[${i}]`).double('item'),
    );
  }

  /** float64 values as hex digits run together. */
  doubles(key: string): Float64Array {
    const text = this.text(key);
    if (!HEX_DOUBLE.test(text)) this.refuse(key, 'hex digits of float64 values');
    return Float64Array.from({ length: text.length / 16 }, (_, i) => doubleOf(text.slice(16 * i, 16 * i + 16)));
  }

  /** IEEE bits in hex, one string each. */
  bits(key: string): number[] {
    return this.texts(key).map((text) => {
      if (!/^[0-9a-f]{4}(?:[0-9a-f]{4})?$/.test(text)) this.refuse(key, 'a list of IEEE bits in hex');
      return Number.parseInt(text, 16);
    });
  }

  /** `[id, amount]` pairs whose amount is a float64 in hex. */
  amounts(key: string): [number, number][] {
    return this.lists(key, (pair) => {
      const [id, amount] = pair.listOf<unknown>('item', 'a pair', () => true);
      if (typeof id !== 'number' || typeof amount !== 'string')
        return pair.refuse('item', 'a pair of id and float64 hex');
      return [id, new Fields({ amount }, pair.where).double('amount')];
    });
  }

  private typed<T>(key: string, shape: Shape, test: (value: unknown) => boolean): T {
    const value = this.value[key];
    if (!test(value)) this.refuse(key, `of type ${shape}`);
    return value as T;
  }

  private listOf<T>(key: string, shape: string, test: (value: unknown) => boolean): T[] {
    const value = this.value[key];
    if (!Array.isArray(value) || !value.every(test)) this.refuse(key, `a list of ${shape}`);
    return value as T[];
  }
}
