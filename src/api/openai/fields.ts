/**
 * The building blocks of the request schemas: optional fields (null means absent, as official clients send it), ranges
 * with one message each, and the translation of a failed parse into the error of the field at fault.
 *
 * Invariant: every rejected request names one field in `param`, in the form `messages[0].content`.
 */
import { z } from 'zod';
import { PlumblineError, type ErrorCode } from '../../errors.js';

/** Absent and null are the same: undefined. */
export function optional<T extends z.ZodType>(schema: T): z.ZodType<z.output<T> | undefined> {
  return schema.nullish().transform((value) => value ?? undefined);
}

/** One rule for a field, said in the same words whichever way it is broken. */
const says = (rule: string) => ({
  error: (issue: { input?: unknown }): string => (issue.input === undefined ? `is required and ${rule}` : rule),
});

export function numberIn(low: number, high: number): z.ZodType<number> {
  const rule = says(`must be a number from ${low} to ${high}`);
  return z.number(rule).min(low, rule).max(high, rule);
}

export function finiteNumber(): z.ZodType<number> {
  return z.number(says('must be a number'));
}

export function integerIn(
  low: number,
  high: number,
  rule = `must be an integer from ${low} to ${high}`,
): z.ZodType<number> {
  return z.int(says(rule)).min(low, says(rule)).max(high, says(rule));
}

/** top_p: the empty set of tokens makes no sense, the whole set does. */
export function probability(): z.ZodType<number> {
  const rule = says('must be a number above 0 and at most 1');
  return z.number(rule).gt(0, rule).max(1, rule);
}

export function text(rule = 'must be a string'): z.ZodType<string> {
  return z.string(says(rule));
}

export function nonEmptyText(rule = 'must be a non-empty string'): z.ZodType<string> {
  return z.string(says(rule)).min(1, says(rule));
}

export function oneOf<const Names extends readonly string[]>(...names: Names): z.ZodType<Names[number]> {
  return z.enum(names, says(`must be one of ${names.join(', ')}`));
}

export function flag(): z.ZodType<boolean> {
  return z.boolean(says('must be true or false'));
}

/** `X` or an array of `X`: always an array afterwards, so that element errors carry their index. */
export function oneOrMany<T extends z.ZodType>(
  element: T,
  most: number,
  rule: string,
): z.ZodType<readonly z.output<T>[]> {
  return z.preprocess(
    (value) => (typeof value === 'string' ? [value] : value),
    z.array(element, says(rule)).max(most, says(rule)),
  );
}

/**
 * A seed: a JSON number while JSON numbers are exact (up to 2^53 - 1), above that a string of decimal digits up to
 * 2^64 - 1. Always a bigint afterwards.
 */
export const seed: z.ZodType<bigint> = z.unknown().transform((value, context): bigint => {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return BigInt(value);
  if (typeof value === 'string' && /^\d{1,20}$/.test(value) && BigInt(value) < 2n ** 64n) return BigInt(value);
  context.addIssue({
    code: 'custom',
    message: 'must be an integer from 0 to 9007199254740991, or a string of decimal digits up to 18446744073709551615',
  });
  return z.NEVER;
});

/** Marks a failed field as known but unsupported rather than wrong. */
export const UNSUPPORTED = { code: 'unsupported_parameter' } as const satisfies { code: ErrorCode };

/** `['messages', 0, 'content']` as `messages[0].content`. */
export function paramPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`;
    return text === '' ? String(key) : `${text}.${String(key)}`;
  }, '');
}

/** Parses a body, or throws the error of its first bad field. */
export function parseBody<T extends z.ZodType>(schema: T, body: unknown): z.output<T> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new PlumblineError('invalid_request', 'the body must be a JSON object');
  }
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const param = paramPath(issue?.path ?? []);
  const code =
    issue?.code === 'custom' && issue.params?.['code'] === UNSUPPORTED.code ? UNSUPPORTED.code : 'invalid_request';
  throw new PlumblineError(code, `'${param}' ${issue?.message ?? 'is invalid'}`, { param });
}
