/**
 * Counts the rows that the validity law would refuse, for a law that makes tokens of them all the same.
 *
 * Invariant: it observes; nothing that it sees changes a token, a draw or an error.
 */
import type { LogitsCensus } from '../errors.js';
import { inspectRow, type RowContext } from './validity.js';

/** Rows that held NaN, +infinity or nothing finite, and were made into tokens. */
export interface LogitsWarning {
  /** How many. */
  readonly rows: number;
  /** Of the first of them. */
  readonly first: LogitsCensus;
}

export class RowWatch {
  #rows = 0;
  #first: LogitsCensus | undefined;

  see(row: Float32Array, context: RowContext): void {
    const verdict = inspectRow(row);
    if (verdict.valid) return;
    this.#rows++;
    this.#first ??= { ...context, ...verdict.census };
  }

  /** undefined while every row was valid. */
  get warning(): LogitsWarning | undefined {
    return this.#first && { rows: this.#rows, first: this.#first };
  }
}
