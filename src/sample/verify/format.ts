/**
 * What a fixture format is to the verifier: how its lines are recognised, and a judge that compares one line.
 */
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';

/** Compares one line (never a `meta` line); state between lines lives in the judge's closure. */
export type LineJudge = (line: Fields, check: Checker) => void;

export interface FixtureFormat {
  /** Name in reports, such as `sampler/ordinary`. */
  readonly kind: string;
  /** Whether a line of this content belongs to the format. */
  recognises(line: Fields): boolean;
  /** A judge for one file, or why there is none yet. */
  readonly judge: (() => LineJudge) | { readonly unsupported: string };
}

/** Formats whose lines carry an `op`. */
export function opFormat(kind: string, ops: readonly string[], judge: FixtureFormat['judge']): FixtureFormat {
  return { kind, recognises: (line) => line.isText('op') && ops.includes(line.text('op')), judge };
}

/** Formats that are recognised by the fields of a line. */
export function fieldFormat(kind: string, fields: readonly string[], judge: FixtureFormat['judge']): FixtureFormat {
  return { kind, recognises: (line) => fields.every((field) => line.has(field)), judge };
}
