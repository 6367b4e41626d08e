/**
 * Which rows of the n-gram table each token reads: a hash of the token and the ids before it.
 *
 *   y_0 = id_t;  y_s = id_{t-s}, or eos when any of id_{t-1} … id_{t-s} is eos
 *   head j of group n (n = 2 … G) reads row  off_j + ((y_0·mult_0 xor … xor y_{n-1}·mult_{n-1}) mod size_j)
 *
 * Products reach 2^63. The hot loop keeps them in three limbs of 22 bits, where xor is a 32-bit operation and every
 * intermediate number is an integer below 2^53: the result is exactly that of 64-bit arithmetic.
 *
 * Invariants: row ids depend on token ids only; cutting a sequence anywhere gives the same rows as long as the history
 * that is passed in is the one that came out.
 */
import { PlumblineError } from '../../errors.js';
import type { NgramConstants } from './ngram-constants.js';

const LIMB_BITS = 22;
const LIMB = 2 ** LIMB_BITS;
const LIMB_MASK = LIMB - 1;
/** id · limb + carry < 2^53 and three limbs hold 66 bits: what the arithmetic below rests on. */
const MAX_ID = 2 ** 30;
/** remainder · 2^22 + limb < 2^53. */
const MAX_HEAD_SIZE = 2 ** 31;

export class NgramHash {
  /** A: rows per token. */
  readonly heads: number;
  private readonly shifts: number;
  private readonly headsPerShift: number;
  /** Limbs of the multipliers, low limb first: [G, 3]. */
  private readonly limbs: Float64Array;
  private readonly sizes: Float64Array;
  private readonly inverses: Float64Array;
  private readonly offsets: Float64Array;

  /**
   * @param eosTokenId the id that a context falls back to
   * @param vocabSize V: ids must be below it
   */
  constructor(
    constants: NgramConstants,
    private readonly eosTokenId: number,
    private readonly vocabSize: number,
  ) {
    this.heads = constants.sizes.length;
    this.shifts = constants.multipliers.length;
    this.headsPerShift = this.heads / (this.shifts - 1);
    if (vocabSize > MAX_ID || constants.sizes.some((size) => size > MAX_HEAD_SIZE) || constants.rows > MAX_HEAD_SIZE) {
      throw new PlumblineError('internal_error', 'n-gram constants leave the range in which the hash is exact');
    }
    this.limbs = new Float64Array(3 * this.shifts);
    constants.multipliers.forEach((multiplier, shift) => {
      for (let limb = 0; limb < 3; limb++) {
        this.limbs[3 * shift + limb] = Number((multiplier >> BigInt(limb * LIMB_BITS)) & BigInt(LIMB_MASK));
      }
    });
    this.sizes = Float64Array.from(constants.sizes);
    this.inverses = this.sizes.map((size) => 1 / size);
    this.offsets = Float64Array.from(constants.offsets);
  }

  /** The history of an empty sequence: G − 1 times eos. */
  emptyHistory(): Int32Array {
    return new Int32Array(this.shifts - 1).fill(this.eosTokenId);
  }

  /** The history after `ids`: the last G − 1 ids of history and ids together. */
  nextHistory(history: ArrayLike<number>, ids: ArrayLike<number>): Int32Array {
    const kept = this.shifts - 1;
    const next = new Int32Array(kept);
    for (let i = 0; i < kept; i++) {
      const at = ids.length - kept + i;
      next[i] = (at >= 0 ? ids[at] : history[kept + at]) as number;
    }
    return next;
  }

  /**
   * Table rows of every head for each id.
   *
   * @param ids n ids in [0, V)
   * @param history the G − 1 ids before them, oldest first
   * @param out int32 [n, A], head order
   */
  rows(ids: ArrayLike<number>, history: ArrayLike<number>, out = new Int32Array(ids.length * this.heads)): Int32Array {
    const context = this.withHistory(ids, history);
    for (let t = 0; t < ids.length; t++) this.rowsOfToken(context, t + this.shifts - 1, out, t * this.heads);
    return out;
  }

  private withHistory(ids: ArrayLike<number>, history: ArrayLike<number>): Int32Array {
    const kept = this.shifts - 1;
    if (history.length !== kept)
      throw new PlumblineError('internal_error', `an n-gram history has ${kept} ids, not ${history.length}`);
    const context = new Int32Array(kept + ids.length);
    context.set(history, 0);
    context.set(ids, kept);
    for (const id of context) {
      if (id < 0 || id >= this.vocabSize)
        throw new PlumblineError('internal_error', `token id ${id} is outside a vocabulary of ${this.vocabSize}`);
    }
    return context;
  }

  private rowsOfToken(context: Int32Array, at: number, out: Int32Array, outAt: number): void {
    const { limbs, sizes, inverses, offsets, eosTokenId, headsPerShift } = this;
    let low = 0;
    let middle = 0;
    let high = 0;
    let cut = false;
    for (let shift = 0; shift < this.shifts; shift++) {
      const seen = context[at - shift] as number;
      // An eos hides what lies further back, but the token's own eos hides nothing.
      cut = cut || (shift > 0 && seen === eosTokenId);
      const id = cut ? eosTokenId : seen;
      const p0 = id * (limbs[3 * shift] as number);
      const c0 = Math.floor(p0 / LIMB);
      const p1 = id * (limbs[3 * shift + 1] as number) + c0;
      const c1 = Math.floor(p1 / LIMB);
      low ^= p0 - c0 * LIMB;
      middle ^= p1 - c1 * LIMB;
      high ^= id * (limbs[3 * shift + 2] as number) + c1;
      if (shift === 0) continue;
      const first = (shift - 1) * headsPerShift;
      for (let head = first; head < first + headsPerShift; head++) {
        const size = sizes[head] as number;
        const inverse = inverses[head] as number;
        let rest = remainder(high, size, inverse);
        rest = remainder(rest * LIMB + middle, size, inverse);
        rest = remainder(rest * LIMB + low, size, inverse);
        out[outAt + head] = (offsets[head] as number) + rest;
      }
    }
  }
}

/**
 * x mod size for integers 0 ≤ x < 2^53, size ≤ 2^31, inverse = 1/size rounded: the quotient estimate is off by at most
 * one, and quotient · size stays an exact integer, so one correction is enough. Several times as fast as `%`.
 */
function remainder(x: number, size: number, inverse: number): number {
  const rest = x - Math.floor(x * inverse) * size;
  return rest < 0 ? rest + size : rest >= size ? rest - size : rest;
}
