/**
 * The deferred draw: a candidate id chosen inside a device chain, whose verdict is read only later. Kept for diagnosis and
 * tests; nothing is served from it.
 *
 * Invariants: the verdict is of the whole row; a bad row is id -1, and `read` is the only way to a token, so no reader can
 * miss it; inside a chain -1 is clamped to 0 for the gather alone. Candidates are the k largest, ties by lower index;
 * values are float32 divided by max(T, 1e-6); the nucleus uses the full-vocabulary normaliser and keeps at least one.
 */
import { PlumblineError } from '../../../errors.js';
import { cpuExpF32 } from '../../../numerics/mlx/cpu-exp.js';
import { FLOAT_TYPES } from '../../../numerics/mlx/float-type.js';
import { argsort } from '../../../numerics/mlx/order.js';
import { logsumexp } from '../../../numerics/mlx/softmax.js';
import { categorical } from '../../rng/categorical.js';
import type { ThreefryKey } from '../../rng/threefry.js';
import type { TokenId } from '../../token-id.js';
import { checkRow, inspectRow, type RowContext } from '../../validity.js';
import { activeTopK, activeTopP, type Filters } from './filters.js';

export const BAD_ROW_ID = -1;

const fround = Math.fround;

/** A drawn id that is not a token yet. */
export class DeferredDraw {
  constructor(
    private readonly row: Float32Array,
    /** -1 when the row was bad. */
    readonly id: number,
    private readonly context: RowContext,
  ) {}

  /** An index that a gather may use before the verdict is read; its result must be dropped when the row was bad. */
  get gatherIndex(): number {
    return Math.max(0, this.id);
  }

  /** The verdict, without raising. */
  get bad(): boolean {
    return this.id === BAD_ROW_ID;
  }

  /**
   * The token.
   * @throws NonFiniteLogitsError when the row was bad.
   */
  read(): TokenId {
    return checkRow(this.row, this.context).token(this.id);
  }
}

/**
 * The candidate that the key selects, whatever the row holds: an invalid row gives an ordinary id here.
 * @throws PlumblineError invalid_distribution unless T > 0 and 1 < k < V.
 */
export function candidateAt(row: Float32Array, filters: Filters, key: ThreefryKey): number {
  const k = activeTopK(filters, row.length);
  if (!(filters.temperature > 0) || k === undefined || k < 2) {
    throw new PlumblineError('invalid_distribution', 'the deferred draw needs temperature > 0 and 1 < top_k < V');
  }
  const divisor = fround(Math.max(filters.temperature, 1e-6));
  const negated = row.map((value) => -value);
  const ids = argsort(negated).slice(0, k);
  const values = ids.map((id) => fround(row[id]! / divisor));
  const kept = nucleusLength(values, row, divisor, activeTopP(filters));
  const logits = values.map((value, rank) => (rank < kept ? value : -Infinity));
  const { ids: chosen } = categorical(key, logits, [1, k], -1, { kind: 'default' });
  return ids[chosen[0]!]!;
}

/** How many ranked candidates stay: max(1, those whose mass before them is below top_p); float32 masses. */
function nucleusLength(
  values: readonly number[],
  row: Float32Array,
  divisor: number,
  topP: number | undefined,
): number {
  if (topP === undefined) return values.length;
  const normaliser = logsumexp(
    row.map((value) => value / divisor),
    FLOAT_TYPES.f32,
  );
  let mass = 0;
  let kept = 0;
  for (const value of values) {
    if (mass < topP) kept++;
    mass = fround(mass + cpuExpF32(fround(value - normaliser)));
  }
  return Math.max(1, kept);
}

/** Draws with an explicit key; the id is -1 when the row is bad. */
export function deferredDraw(row: Float32Array, filters: Filters, key: ThreefryKey, context: RowContext): DeferredDraw {
  const id = inspectRow(row).valid ? candidateAt(row, filters, key) : BAD_ROW_ID;
  return new DeferredDraw(row, id, context);
}
