/** Hash constants of one PLE layer. */
export interface NgramConstants {
  /** G odd multipliers, one a shift; `multiplier · id < 2^63` for every id below V. */
  readonly multipliers: readonly bigint[];
  /** A primes: rows of each head's part of the table. */
  readonly sizes: readonly number[];
  /** A first rows: running sums of `sizes`. */
  readonly offsets: readonly number[];
  /** Rows of the whole table, padding included. */
  readonly rows: number;
}
