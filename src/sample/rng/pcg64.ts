/**
 * PCG64 (128-bit linear congruential generator, XSL-RR output) as NumPy seeds and runs it: the random numbers of one
 * request.
 *
 * Invariants: the state moves before each output and never otherwise; a double takes exactly one step. 128-bit numbers
 * are eight 16-bit limbs, least significant first: a product of two limbs is below 2^32 and a column of eight such
 * products below 2^35, so every intermediate is exact in a float64. No BigInt after seeding.
 */
import { seedWords } from './seed-sequence.js';

const LIMBS = 8;
const MULTIPLIER = limbsOf(0x2360ed051fc65da44385df649fccf645n);

function limbsOf(value: bigint): Uint32Array {
  return Uint32Array.from({ length: LIMBS }, (_, i) => Number((value >> BigInt(16 * i)) & 0xffffn));
}

function hexOf(limbs: Uint32Array): string {
  return Array.from(limbs, (limb) => limb.toString(16).padStart(4, '0'))
    .reverse()
    .join('');
}

/** One 64-bit output as two unsigned 32-bit halves. */
export interface Uint64 {
  readonly high: number;
  readonly low: number;
}

export class Pcg64 {
  private readonly state = new Uint32Array(LIMBS);
  private readonly increment: Uint32Array;
  private high = 0;
  private low = 0;

  /**
   * The generator of `numpy.random.Generator(PCG64(seed))`.
   * @param seed non-negative, of any size.
   */
  constructor(seed: bigint) {
    const words = seedWords(seed);
    const quad = (i: number): bigint => BigInt(words[2 * i]!) | (BigInt(words[2 * i + 1]!) << 32n);
    const start = (quad(0) << 64n) | quad(1);
    const stream = (quad(2) << 64n) | quad(3);
    this.increment = limbsOf((stream << 1n) | 1n);
    this.step();
    this.add(limbsOf(start));
    this.step();
  }

  /** The next 64 random bits. */
  nextUint64(): Uint64 {
    this.advance();
    return { high: this.high, low: this.low };
  }

  /** The next float64 in [0, 1): the upper 53 bits of one output, times 2^-53. */
  nextDouble(): number {
    this.advance();
    return (this.high * 0x200000 + (this.low >>> 11)) * 2 ** -53;
  }

  /** The 128-bit state as 32 hex digits, for receipts and verification. */
  get stateHex(): string {
    return hexOf(this.state);
  }

  /** The 128-bit increment (odd; fixed by the seed) as 32 hex digits. */
  get incrementHex(): string {
    return hexOf(this.increment);
  }

  /** Steps, then folds the state's halves together and rotates right by its top six bits. */
  private advance(): void {
    this.step();
    const s = this.state;
    const high = (((s[7]! ^ s[3]!) << 16) | (s[6]! ^ s[2]!)) >>> 0;
    const low = (((s[5]! ^ s[1]!) << 16) | (s[4]! ^ s[0]!)) >>> 0;
    const rotation = s[7]! >>> 10;
    const [a, b] = rotation < 32 ? [high, low] : [low, high];
    const bits = rotation & 31;
    // `x << 32` is `x << 0` in JavaScript, so a rotation by a multiple of 32 must not reach the shifts.
    this.high = bits === 0 ? a : ((a >>> bits) | (b << (32 - bits))) >>> 0;
    this.low = bits === 0 ? b : ((b >>> bits) | (a << (32 - bits))) >>> 0;
  }

  /** state = state * MULTIPLIER + increment, modulo 2^128. */
  private step(): void {
    const s = this.state;
    for (let i = 0; i < LIMBS; i++) {
      let column = this.increment[i]!;
      for (let j = 0; j <= i; j++) column += s[j]! * MULTIPLIER[i - j]!;
      STEP_COLUMNS[i] = column;
    }
    this.settle(STEP_COLUMNS);
  }

  private add(value: Uint32Array): void {
    for (let i = 0; i < LIMBS; i++) STEP_COLUMNS[i] = this.state[i]! + value[i]!;
    this.settle(STEP_COLUMNS);
  }

  /** Writes column sums back as limbs, carrying upwards; the carry out of the top limb is the modulus. */
  private settle(columns: Float64Array): void {
    let carry = 0;
    for (let i = 0; i < LIMBS; i++) {
      const sum = columns[i]! + carry;
      carry = Math.floor(sum / 0x10000);
      this.state[i] = sum - carry * 0x10000;
    }
  }
}

/** Scratch of one step; generators never run concurrently within a step. */
const STEP_COLUMNS = new Float64Array(LIMBS);
