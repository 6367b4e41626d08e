/**
 * What a row of logits is sampled from: token ids with their probabilities, in one of two frames.
 *
 * `sparse` (top_k on): sums run over the entries alone, and the constructor normalises once more. `dense` (top_k off):
 * sums run over the full row with zeros in place, and each draw divides by the sum once more. The frames differ in last
 * bits only, but seeds are promised to the bit.
 *
 * Invariants: lengths are equal and at least 1; no entry is negative or non-finite after construction; there is no
 * silent fallback: a distribution without positive, finite mass is NonFiniteLogitsError.
 */
import { NonFiniteLogitsError, PlumblineError } from '../../../errors.js';
import { censusOf, type RowContext } from '../../validity.js';
import { indexAt, type UniformSource } from './choice.js';
import { pairwiseSum, pairwiseSumSparse } from '../../pairwise-sum.js';

/** probs divided by `sum`, in place. */
export function divideBy(probs: Float64Array, sum: number): Float64Array {
  for (let i = 0; i < probs.length; i++) probs[i] = probs[i]! / sum;
  return probs;
}

export class Distribution {
  private constructor(
    /** Token ids; ascending where a law made them. Not changed after construction. */
    readonly ids: Int32Array,
    /** float64 probabilities, as many as ids. */
    readonly probs: Float64Array,
    /** Length of the full row in the dense frame; undefined in the sparse frame. */
    readonly rowLength: number | undefined,
  ) {}

  /**
   * The sparse frame: keeps the ids in the given order, turns non-finite entries into 0 and divides by the sum.
   * @throws PlumblineError invalid_distribution: no entry, unequal lengths, or a finite negative entry.
   * @throws NonFiniteLogitsError: no positive mass, or an infinite sum; the census is of the probabilities.
   */
  static sparse(ids: Int32Array, probs: Float64Array, context: RowContext): Distribution {
    if (ids.length !== probs.length) {
      throw new PlumblineError('invalid_distribution', `${ids.length} ids but ${probs.length} probabilities`);
    }
    if (ids.length === 0) throw new PlumblineError('invalid_distribution', 'a distribution needs at least one entry');
    const clean = probs.map((p) => (Number.isFinite(p) ? p : 0));
    if (clean.some((p) => p < 0)) throw new PlumblineError('invalid_distribution', 'a probability is negative');
    const sum = pairwiseSum(clean);
    if (!(sum > 0) || sum === Infinity) throw new NonFiniteLogitsError({ ...context, ...censusOf(probs) });
    return new Distribution(ids, divideBy(clean, sum), undefined);
  }

  /**
   * The dense frame: a full row given by its positive entries, already normalised by the law that shaped it.
   * @param ids ascending.
   */
  static dense(ids: Int32Array, probs: Float64Array, rowLength: number): Distribution {
    return new Distribution(ids, probs, rowLength);
  }

  /** All mass on one id, in the sparse frame. */
  static oneHot(id: number): Distribution {
    return new Distribution(Int32Array.of(id), Float64Array.of(1), undefined);
  }

  /** Probability of an id; 0 when absent. */
  probabilityOf(id: number): number {
    const at = this.ids.indexOf(id);
    return at < 0 ? 0 : this.probs[at]!;
  }

  /** A full row of `length` probabilities; ids must be below it. */
  toDense(length: number): Float64Array {
    const row = new Float64Array(length);
    this.ids.forEach((id, i) => (row[id] = this.probs[i]!));
    return row;
  }

  /** The id that u in [0, 1) selects. */
  idAt(u: number): number {
    const again = this.rowLength === undefined ? 1 : pairwiseSumSparse(this.ids, this.probs, this.rowLength);
    return this.ids[indexAt(this.probs, u, again)]!;
  }

  /** One draw: exactly one double, whatever the number of entries. */
  draw(random: UniformSource): number {
    return this.idAt(random.nextDouble());
  }
}
