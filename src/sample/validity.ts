/**
 * The one door to a token id. A row of logits is valid when it has no NaN, no +infinity, and at least one finite entry;
 * -infinity beside a finite winner is a legal mask. Only here a `TokenId` is made: from a row that passed, or, under a
 * law that judges no rows, from any row and by a function of its own.
 *
 * Invariants: one pass gives verdict, maximum and arg-max together; the verdict is of the whole row, never of candidates;
 * an invalid row yields a census and nothing else.
 */
import { NonFiniteLogitsError, PlumblineError } from '../errors.js';
import type { Phase } from '../engine/plan/phase.js';
import type { TokenId } from './token-id.js';

/** A row of logits: float32 as the engine returns it, float64 where a law subtracts penalties in float64. */
export type LogitsRow = Float32Array | Float64Array;

/** Which decision a row was computed for; goes into the error. */
export interface RowContext {
  /** The place that asks for a token: `ar_step`, `prefill_frontier`, `draft`, `verify`, `bonus`, … */
  readonly site: string;
  /** The phase of the forward that made the row. */
  readonly phase: Phase;
  /** 0-based index of the completion token that the row decides. */
  readonly step: number;
}

export interface RowCensus {
  readonly nanCount: number;
  /** Infinities of both signs, masks included. */
  readonly infCount: number;
  readonly vocabSize: number;
}

export type RowVerdict =
  | { readonly valid: true; readonly argmax: number; readonly max: number }
  | { readonly valid: false; readonly census: RowCensus };

/** Counts what is not finite in a row. */
export function censusOf(row: LogitsRow): RowCensus {
  let nanCount = 0;
  let infCount = 0;
  for (const value of row) {
    if (value !== value) nanCount++;
    else if (value === Infinity || value === -Infinity) infCount++;
  }
  return { nanCount, infCount, vocabSize: row.length };
}

/** Entries that are looked at together: one comparison each says that there is neither a new maximum nor a NaN. */
const STRETCH = 8;

/** The validity law of a row, with its maximum and the lowest index that holds it. Never throws. */
export function inspectRow(row: LogitsRow): RowVerdict {
  const { length } = row;
  let max = -Infinity;
  let argmax = -1;
  for (let i = 0; i < length; i += STRETCH) {
    if (
      row[i]! <= max &&
      row[i + 1]! <= max &&
      row[i + 2]! <= max &&
      row[i + 3]! <= max &&
      row[i + 4]! <= max &&
      row[i + 5]! <= max &&
      row[i + 6]! <= max &&
      row[i + 7]! <= max
    ) {
      continue;
    }
    for (let at = i; at < i + STRETCH && at < length; at++) {
      const value = row[at]!;
      if (value <= max) continue;
      if (value !== value) return { valid: false, census: censusOf(row) };
      max = value;
      argmax = at;
    }
  }
  if (max === Infinity || max === -Infinity) return { valid: false, census: censusOf(row) };
  return { valid: true, argmax, max };
}

/** Proof that a row passed the validity law; the only maker of token ids. */
export class ValidRow {
  private constructor(
    /** The row itself, not copied. */
    readonly row: LogitsRow,
    /** Lowest index of the maximum. */
    readonly argmax: number,
    /** The maximum: finite. */
    readonly max: number,
  ) {}

  /**
   * @param row [vocabSize], not changed.
   * @throws NonFiniteLogitsError with the census of the row.
   */
  static check(row: LogitsRow, context: RowContext): ValidRow {
    const verdict = inspectRow(row);
    if (!verdict.valid) throw new NonFiniteLogitsError({ ...context, ...verdict.census });
    return new ValidRow(row, verdict.argmax, verdict.max);
  }

  /**
   * The id as a token. Must be called before the row's memory is used for something else.
   * @throws PlumblineError internal_error when the id is outside the row or masked: a programming error of a sampler law.
   */
  token(id: number): TokenId {
    const value = this.row[id];
    if (value === undefined || value === -Infinity || value !== value) {
      throw new PlumblineError(
        'internal_error',
        `a sampler chose id ${id}, which its row of ${this.row.length} does not allow`,
      );
    }
    return id as TokenId;
  }
}

/**
 * An id of a row as a token without a verdict on the row: for laws that make a token of any row (`invalidRow` of the
 * family's laws). @throws PlumblineError internal_error for an id outside the row.
 */
export function unjudgedToken(row: LogitsRow, id: number): TokenId {
  if (Number.isInteger(id) && id >= 0 && id < row.length) return id as TokenId;
  throw new PlumblineError('internal_error', `a sampler chose id ${id} from a row of ${row.length}`);
}

/** `ValidRow.check` under the name that the loops use. */
export function checkRow(row: LogitsRow, context: RowContext): ValidRow {
  return ValidRow.check(row, context);
}
