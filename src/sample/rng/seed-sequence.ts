/**
 * NumPy's SeedSequence for a single integer: spreads a seed of any size over eight 32-bit words.
 *
 * Invariants: all arithmetic is modulo 2^32; the seed is read as little-endian 32-bit words, at least one; a negative
 * seed is refused. The words are those of `SeedSequence(seed).generate_state(8, uint32)`.
 */
import { PlumblineError } from '../../errors.js';

const POOL_SIZE = 4;
const INIT_A = 0x43b0d7e5;
const MULT_A = 0x931e8875;
const INIT_B = 0x8b51f9dd;
const MULT_B = 0x58f38ded;
const MIX_LEFT = 0xca01f9dd;
const MIX_RIGHT = 0x4973f715;

function wordsOf(seed: bigint): number[] {
  const words: number[] = [];
  for (let rest = seed; rest > 0n; rest >>= 32n) words.push(Number(rest & 0xffffffffn));
  return words.length === 0 ? [0] : words;
}

/** A hash whose multiplier moves on with every call, so that equal words at different places come out different. */
function movingHash(start: number, step: number): (value: number) => number {
  let multiplier = start;
  return (value) => {
    const mixed = value ^ multiplier;
    multiplier = Math.imul(multiplier, step);
    const product = Math.imul(mixed, multiplier);
    return (product ^ (product >>> 16)) >>> 0;
  };
}

function mix(x: number, y: number): number {
  const r = (Math.imul(MIX_LEFT, x) - Math.imul(MIX_RIGHT, y)) | 0;
  return (r ^ (r >>> 16)) >>> 0;
}

/**
 * Eight uint32 words from a non-negative seed of any size.
 * @throws PlumblineError invalid_request when the seed is negative.
 */
export function seedWords(seed: bigint): Uint32Array {
  if (seed < 0n) throw new PlumblineError('invalid_request', 'seed must not be negative', { param: 'seed' });
  const words = wordsOf(seed);
  const hash = movingHash(INIT_A, MULT_A);
  const pool = Array.from({ length: POOL_SIZE }, (_, i) => hash(words[i] ?? 0));
  for (let source = 0; source < POOL_SIZE; source++) {
    for (let target = 0; target < POOL_SIZE; target++) {
      if (source !== target) pool[target] = mix(pool[target]!, hash(pool[source]!));
    }
  }
  for (const word of words.slice(POOL_SIZE)) {
    for (let target = 0; target < POOL_SIZE; target++) pool[target] = mix(pool[target]!, hash(word));
  }
  const output = movingHash(INIT_B, MULT_B);
  return Uint32Array.from({ length: 8 }, (_, i) => output(pool[i % POOL_SIZE]!));
}
