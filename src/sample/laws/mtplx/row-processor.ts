/**
 * From the raw row to the row that is sampled: check whole, then mask, then penalties, then check again.
 *
 * Invariants: the raw row is tested before anything touches it, because a mask can hide a NaN; ids that the tokenizer
 * does not have (a padded lm_head) become -infinity and can never be drawn; the processed row must still be valid, so a
 * mask or overlay that leaves nothing finite is an error. The caller's row is never written; scratch is reused.
 */
import { checkRow, type LogitsRow, type RowContext, type ValidRow } from '../../validity.js';
import type { Lane } from './filters.js';
import { penaltiesActive, subtractPenalties, type Penalties, type RowDtype } from './penalties.js';

export interface RowShape {
  /** Length of a row: the width of lm_head. */
  readonly vocabSize: number;
  /** Ids at or above this exist in lm_head only. At most vocabSize. */
  readonly tokenizerSize: number;
  readonly dtype: RowDtype;
}

export class RowProcessor {
  private single: Float32Array | undefined;
  private double: Float64Array | undefined;

  constructor(private readonly shape: RowShape) {}

  /**
   * @returns the processed row, checked; its memory is valid until the next call.
   * @throws NonFiniteLogitsError: of the raw row, or of the processed one when only processing emptied it.
   */
  process(raw: Float32Array, penalties: Penalties, lane: Lane, context: RowContext): ValidRow {
    const valid = checkRow(raw, context);
    const { vocabSize, tokenizerSize, dtype } = this.shape;
    const penalised = penaltiesActive(penalties);
    if (!penalised && tokenizerSize >= vocabSize) return valid;
    const row = this.copyOf(raw, penalised && lane === 'dense');
    row.fill(-Infinity, tokenizerSize);
    if (penalised) subtractPenalties(row, penalties, lane, dtype);
    return checkRow(row, context);
  }

  private copyOf(raw: Float32Array, wide: boolean): LogitsRow {
    const copy = wide
      ? (this.double ??= new Float64Array(this.shape.vocabSize))
      : (this.single ??= new Float32Array(this.shape.vocabSize));
    copy.set(raw);
    return copy;
  }
}
