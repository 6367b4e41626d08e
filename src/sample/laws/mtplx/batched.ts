/**
 * Several distributions beside each other: padded arrays, and rows that are shaped only when they are reached.
 *
 * Invariants: padding is id -1 with probability 0; every row sum is finite and positive; sampling never returns padding;
 * a row shaped lazily behaves exactly as if it were read alone, so a bad row that is never reached never raises.
 */
import { NonFiniteLogitsError } from '../../../errors.js';
import { censusOf, type RowContext, type ValidRow } from '../../validity.js';
import { indexAt, type UniformSource } from './choice.js';
import { divideBy, type Distribution } from './distribution.js';
import type { Filters } from './filters.js';
import type { HostShaper } from './host-distribution.js';
import { pairwiseSum } from '../../pairwise-sum.js';

export const PADDING_ID = -1;

export class PaddedRows {
  private constructor(
    /** One Int32Array of [width] for each row, padded with -1. */
    readonly ids: readonly Int32Array[],
    /** One Float64Array of [width] for each row, padded with 0, normalised. */
    readonly probs: readonly Float64Array[],
  ) {}

  /**
   * @param width at least the longest row's number of entries.
   * @throws NonFiniteLogitsError when a row's sum is not finite and positive.
   */
  static of(rows: readonly Distribution[], width: number, context: RowContext): PaddedRows {
    const ids = rows.map((row) => {
      const padded = new Int32Array(width).fill(PADDING_ID);
      padded.set(row.ids);
      return padded;
    });
    const probs = rows.map((row) => {
      const padded = new Float64Array(width);
      padded.set(row.probs);
      const sum = pairwiseSum(padded);
      if (!(sum > 0) || sum === Infinity) throw new NonFiniteLogitsError({ ...context, ...censusOf(row.probs) });
      return divideBy(padded, sum);
    });
    return new PaddedRows(ids, probs);
  }

  /** One draw from one row: exactly one double. */
  draw(row: number, random: UniformSource): number {
    return this.ids[row]![indexAt(this.probs[row]!, random.nextDouble())]!;
  }
}

/** Rows of one verify window, each checked and shaped when it is first reached. */
export class LazyRows {
  private readonly shaped: (Distribution | undefined)[] = [];

  /**
   * @param rowAt checks (and processes) row i, or throws its error.
   */
  constructor(
    private readonly rowAt: (index: number) => ValidRow,
    private readonly shaper: HostShaper,
    private readonly filters: Filters,
    private readonly contextOf: (index: number) => RowContext,
  ) {}

  /**
   * The distribution of row `index`; reaching a bad row raises its error, every time.
   * @throws NonFiniteLogitsError
   */
  at(index: number): Distribution {
    return (this.shaped[index] ??= this.shaper.shape(this.rowAt(index), this.filters, this.contextOf(index)));
  }
}
