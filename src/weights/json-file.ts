/**
 * A JSON object from a checkpoint folder (config.json and its like), read strictly, with a typed way to take keys out of
 * it that always says which key, what it holds, and which rule it breaks.
 *
 * Invariants: `null` counts as absent, as the libraries that write these files mean it; no number leaves here that is
 * not inside the bounds that the caller gave; nothing is coerced.
 */
import { basename } from 'node:path';
import { PlumblineError, type ErrorCode } from '../errors.js';
import { readSmallFile } from './file.js';
import {
  briefJson,
  isJsonArray,
  isJsonObject,
  parseStrictJson,
  type JsonObject,
  type JsonValue,
} from './strict-json.js';

/** Configs with one entry per layer and tensor reach a few hundred KB. */
const MAX_JSON_BYTES = 8 * 1024 * 1024;

/** Codes of a file that breaks its rules, and of one that asks for what is not done here. */
export interface JsonFileCodes {
  readonly invalid: ErrorCode;
  readonly unsupported: ErrorCode;
}

const CONFIG_CODES: JsonFileCodes = { invalid: 'config_invalid', unsupported: 'config_unsupported' };

/**
 * Read a file whose whole content is one JSON object.
 *
 * @throws checkpoint_not_found, checkpoint_unreadable, and `codes.invalid` when it is not strict JSON or no object
 */
export function readJsonFile(path: string, codes: JsonFileCodes = CONFIG_CODES): JsonKeys {
  const file = basename(path);
  const fail = (why: string): never => {
    throw new PlumblineError(codes.invalid, `${file} is not usable: ${why}`);
  };
  const json = parseStrictJson(readSmallFile(path, MAX_JSON_BYTES), (why) => fail(`it is not valid JSON: ${why}`));
  if (!isJsonObject(json)) return fail(`it holds ${briefJson(json)}, not an object`);
  return new JsonKeys(json, file, '', codes);
}

export interface Bounds {
  readonly min?: number;
  readonly max: number;
}

export class JsonKeys {
  constructor(
    private readonly object: JsonObject,
    private readonly file: string,
    private readonly prefix: string,
    private readonly codes: JsonFileCodes = CONFIG_CODES,
  ) {}

  /** The value of a key, undefined when absent or null. */
  raw(key: string): JsonValue | undefined {
    return this.object[key] ?? undefined;
  }

  /** Whether the key is there at all, be it null: for the few keys where null says more than absence. */
  has(key: string): boolean {
    return Object.hasOwn(this.object, key);
  }

  /** An integer within bounds (at least 1 unless said), or the default when absent. */
  integer(key: string, bounds: Bounds, fallback?: number): number {
    const value = this.raw(key) ?? fallback ?? this.missing(key);
    return this.checkInteger(key, value, bounds);
  }

  checkInteger(key: string, value: JsonValue, { min = 1, max }: Bounds): number {
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
    return this.invalid(key, `must be an integer from ${min} to ${max}`, value);
  }

  /** A finite number above `above`, at most `max`. */
  number(key: string, { above, max }: { readonly above: number; readonly max: number }, fallback?: number): number {
    const value = this.raw(key) ?? fallback ?? this.missing(key);
    if (typeof value === 'number' && value > above && value <= max) return value;
    return this.invalid(key, `must be a number above ${above} and at most ${max}`, value);
  }

  flag(key: string, fallback: boolean): boolean {
    const value = this.raw(key) ?? fallback;
    return typeof value === 'boolean' ? value : this.invalid(key, 'must be true or false', value);
  }

  text(key: string, fallback?: string): string {
    const value = this.raw(key) ?? fallback ?? this.missing(key);
    return typeof value === 'string' ? value : this.invalid(key, 'must be a string', value);
  }

  list(key: string): readonly JsonValue[] | undefined {
    const value = this.raw(key);
    if (value === undefined || isJsonArray(value)) return value;
    return this.invalid(key, 'must be a list', value);
  }

  child(key: string): JsonKeys | undefined {
    const value = this.raw(key);
    if (value === undefined) return undefined;
    if (!isJsonObject(value)) return this.invalid(key, 'must be an object', value);
    return new JsonKeys(value, this.file, `${this.prefix}${key}.`, this.codes);
  }

  missing(key: string): never {
    throw new PlumblineError(this.codes.invalid, `${this.file}: ${this.prefix}${key} is missing`);
  }

  /** Refuse a value; `rule` is a clause such as "must be a multiple of num_key_value_heads (2)". */
  invalid(key: string, rule: string, value: JsonValue | undefined = this.raw(key)): never {
    throw new PlumblineError(
      this.codes.invalid,
      `${this.file}: ${this.prefix}${key} is ${briefJson(value)}; it ${rule}`,
    );
  }

  unsupported(key: string, rule: string, value: JsonValue | undefined = this.raw(key)): never {
    throw new PlumblineError(
      this.codes.unsupported,
      `${this.file}: ${this.prefix}${key} is ${briefJson(value)}; ${rule}`,
    );
  }
}
