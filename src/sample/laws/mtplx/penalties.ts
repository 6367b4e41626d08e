/**
 * Penalties of the MTPLX law, on the raw row before temperature:
 * l[j] - (frequency * n[j] + presence * [n[j] > 0]) - overlay[j], with n counted over completion tokens only.
 *
 * Invariants: the amount is formed in float64; counts are applied before the overlay, each with its own rounding. The
 * dense lane subtracts in float64; greedy and sparse lanes round the amount and the difference to the row's own type
 * (float32 or bfloat16). Nothing active: the row is used as it is, bit for bit. The given row is never changed.
 */
import { roundBf16 } from '../../../numerics/rounding.js';
import type { LogitsRow } from '../../validity.js';
import { MTPLX } from './constants.js';
import type { Lane } from './filters.js';

/** The type that the forward computed the row in; its values arrive as float32 either way. */
export type RowDtype = 'f32' | 'bf16';

export interface Penalties {
  /** Already clamped to [-2, 2] (`clampPenalty`). */
  readonly presence: number;
  readonly frequency: number;
  /** Completion tokens so far: id -> how often. */
  readonly counts: ReadonlyMap<number, number>;
  /** Sparse amounts of the loop and thinking guards: finite, not clamped; applied in iteration order. */
  readonly overlay?: Iterable<readonly [id: number, amount: number]> | undefined;
}

/** Presence and frequency penalties act within [-2, 2]. */
export function clampPenalty(value: number): number {
  return Math.min(MTPLX.mostPenalty, Math.max(-MTPLX.mostPenalty, value));
}

/** Whether these penalties can change a row. */
export function penaltiesActive(penalties: Penalties): boolean {
  if (penalties.overlay !== undefined) return true;
  return (penalties.presence !== 0 || penalties.frequency !== 0) && penalties.counts.size > 0;
}

type Subtract = (row: LogitsRow, id: number, amount: number) => void;

const subtractIn: Record<'f64' | RowDtype, Subtract> = {
  f64: (row, id, amount) => {
    row[id] = row[id]! - amount;
  },
  f32: (row, id, amount) => {
    row[id] = Math.fround(row[id]! - Math.fround(amount));
  },
  bf16: (row, id, amount) => {
    row[id] = roundBf16(Math.fround(row[id]! - roundBf16(amount)));
  },
};

/** Subtracts the penalties in place, with the rounding of the lane. `row` is float64 in the dense lane, else float32. */
export function subtractPenalties(row: LogitsRow, penalties: Penalties, lane: Lane, dtype: RowDtype): void {
  const subtract = subtractIn[lane === 'dense' ? 'f64' : dtype];
  const { presence, frequency } = penalties;
  for (const [id, n] of penalties.counts) {
    if (n > 0) subtract(row, id, frequency * n + presence);
  }
  for (const [id, amount] of penalties.overlay ?? []) subtract(row, id, amount);
}
