/**
 * xorshift64* (shifts 12, 25, 27): the random numbers of the DS4 law. The seed is the first state, unmixed, so
 * neighbouring seeds have related first numbers.
 *
 * Invariant: state 0 is legal and counts as the golden ratio for one step; after a step the state is never 0.
 */

/** The numbers of the generator. */
export interface XorshiftConstants {
  readonly shifts: readonly [right: bigint, left: bigint, right2: bigint];
  readonly multiplier: bigint;
  /** What a state of 0 counts as. */
  readonly zeroState: bigint;
}

const BITS = 64;
/** Bits of an output that are not part of its uniform number: 24 stay. */
const DROPPED = 40n;
const UNIT = 2 ** -24;

export class Xorshift64Star {
  #state: bigint;

  /** @param state any unsigned 64-bit integer. */
  constructor(
    state: bigint,
    private readonly constants: XorshiftConstants,
  ) {
    this.#state = BigInt.asUintN(BITS, state);
  }

  get state(): bigint {
    return this.#state;
  }

  /** The next unsigned 64-bit output. */
  next(): bigint {
    const { shifts, multiplier, zeroState } = this.constants;
    let x = this.#state === 0n ? zeroState : this.#state;
    x ^= x >> shifts[0];
    x ^= BigInt.asUintN(BITS, x << shifts[1]);
    x ^= x >> shifts[2];
    this.#state = x;
    return BigInt.asUintN(BITS, x * multiplier);
  }

  /** The next output as a float32 in [0, 1): its upper 24 bits, exact. */
  nextUniform(): number {
    return uniformOf(this.next());
  }
}

/** The uniform number of an output. */
export function uniformOf(output: bigint): number {
  return Number(output >> DROPPED) * UNIT;
}
