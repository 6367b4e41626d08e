/**
 * Pieces that the sampler fixture formats share: settings, contexts, expected distributions and errors.
 *
 * Invariant: probabilities compare at relative 1e-13 (exp is the only inexact operation); ids, tokens, errors, counts and
 * generator states compare exactly.
 */
import { NonFiniteLogitsError } from '../../errors.js';
import { laneOf, type Filters } from '../laws/mtplx/filters.js';
import type { Distribution } from '../laws/mtplx/distribution.js';
import type { RowDtype } from '../laws/mtplx/penalties.js';
import type { RowContext } from '../validity.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';

export const PROBABILITY_TOLERANCE = 1e-13;
export const RESIDUAL_TOLERANCE = 1e-12;

export interface FixtureSettings extends Filters {
  readonly presence: number;
  readonly frequency: number;
}

export function settingsOf(cfg: Fields): FixtureSettings {
  return {
    temperature: cfg.number('T'),
    topP: cfg.number('top_p'),
    topK: cfg.integer('top_k'),
    presence: cfg.has('presence') ? cfg.number('presence') : 0,
    frequency: cfg.has('frequency') ? cfg.number('frequency') : 0,
  };
}

export function rowDtypeOf(line: Fields): RowDtype {
  if (!line.has('row_dtype')) return 'f32';
  const dtype = line.text('row_dtype');
  if (dtype !== 'bf16' && dtype !== 'f32') line.refuse('row_dtype', '"f32" or "bf16"');
  return dtype;
}

/** Fixtures name the check that refuses a row; it stands as the site of the context here. */
export function contextFor(filters: Filters, step = 0): RowContext {
  return { site: laneOf(filters) === 'greedy' ? 'greedy argmax' : 'softmax', phase: 'decode', step };
}

const LARGEST_VOCAB = 1 << 20;

/** `V`, bounded, because arrays are made of it. */
export function vocabSizeOf(line: Fields): number {
  const vocabSize = line.integer('V');
  if (vocabSize < 1 || vocabSize > LARGEST_VOCAB) line.refuse('V', `from 1 to ${LARGEST_VOCAB}`);
  return vocabSize;
}

/** A row of logits whose length must be V. */
export function rowOf(line: Fields, key: string, vocabSize: number): Float32Array {
  const row = line.floats(key);
  if (row.length !== vocabSize) line.refuse(key, `${vocabSize} float32 values`);
  return row;
}

/** `ids` ascending, or "all". */
export function idsOf(line: Fields, key: string, vocabSize: number): ArrayLike<number> {
  if (!line.isText(key)) return line.integers(key);
  if (line.text(key) !== 'all') line.refuse(key, 'a list of ids or "all"');
  return Array.from({ length: vocabSize }, (_, id) => id);
}

export function checkDistribution(
  check: Checker,
  what: string,
  got: Pick<Distribution, 'ids' | 'probs'>,
  want: Fields,
  vocabSize: number,
): void {
  check.sequence(`${what} ids`, got.ids, idsOf(want, 'ids', vocabSize));
  check.close(`${what} probabilities`, got.probs, want.doubles('probs'), PROBABILITY_TOLERANCE);
}

/** The value of `run`, or the NonFiniteLogitsError that it threw; anything else propagates. */
export function attempt<T>(run: () => T): T | NonFiniteLogitsError {
  try {
    return run();
  } catch (thrown) {
    if (thrown instanceof NonFiniteLogitsError) return thrown;
    throw thrown;
  }
}

/** `want` holds error, where, nan, inf, vocab. */
export function checkError(check: Checker, what: string, got: unknown, want: Fields): void {
  if (!(got instanceof NonFiniteLogitsError)) {
    check.that(false, () => `${what}: no error, expected ${want.text('error')}`);
    return;
  }
  check.equal(`${what} error`, got.name, want.text('error'));
  check.equal(`${what} where`, got.census.site, want.text('where'));
  check.equal(`${what} NaN count`, got.census.nanCount, want.integer('nan'));
  check.equal(`${what} infinity count`, got.census.infCount, want.integer('inf'));
  check.equal(`${what} vocabulary size`, got.census.vocabSize, want.integer('vocab'));
}
