/**
 * Threefry-2x32 with 20 rounds as MLX uses it: keys, splitting, random bits and uniforms. Never for ordinary tokens; only
 * the deferred primitive and fixture verification draw from it.
 *
 * Invariants: words are uint32 and arithmetic is modulo 2^32; the high word of a seed comes first in its key; only the
 * number of elements decides the counters, so a longer draw is not an extension of a shorter one.
 */
import type { FloatType } from '../../numerics/mlx/float-type.js';

/** Two uint32 words. */
export type ThreefryKey = readonly [high: number, low: number];

const PARITY = 0x1bd11bda;
const ROTATIONS = [
  [13, 15, 26, 6],
  [17, 29, 16, 24],
] as const;

/** The key of a 64-bit seed. */
export function threefryKey(seed: bigint): ThreefryKey {
  return [Number((seed >> 32n) & 0xffffffffn), Number(seed & 0xffffffffn)];
}

/** One block: two random words for a key and a counter. */
export function threefryHash(key: ThreefryKey, count: readonly [number, number]): [number, number] {
  const schedule = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
  let x0 = (count[0] + schedule[0]!) | 0;
  let x1 = (count[1] + schedule[1]!) | 0;
  for (let group = 0; group < 5; group++) {
    for (const rotation of ROTATIONS[group % 2]!) {
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << rotation) | (x1 >>> (32 - rotation))) ^ x0;
    }
    x0 = (x0 + schedule[(group + 1) % 3]!) | 0;
    x1 = (x1 + schedule[(group + 2) % 3]! + group + 1) | 0;
  }
  return [x0 >>> 0, x1 >>> 0];
}

/** `count` random words: counter i pairs word i with the word half a block later; an odd middle word stands alone. */
export function randomWords(key: ThreefryKey, count: number): Uint32Array {
  const words = new Uint32Array(count);
  const half = count >> 1;
  const odd = count & 1;
  for (let i = 0; i < half; i++) {
    const [first, second] = threefryHash(key, [i, i + half + odd]);
    words[i] = first;
    words[i + half + odd] = second;
  }
  if (odd === 1) words[half] = threefryHash(key, [half, 0])[0];
  return words;
}

/** `elements` unsigned integers of `width` bytes: the words' bytes, little-endian, cut to size. */
export function randomBits(key: ThreefryKey, elements: number, width: 1 | 2 | 4): number[] {
  const words = randomWords(key, Math.ceil((elements * width) / 4));
  const perWord = 4 / width;
  const mask = width === 4 ? 0xffffffff : (1 << (8 * width)) - 1;
  return Array.from({ length: elements }, (_, i) => {
    const word = words[Math.floor(i / perWord)]!;
    return ((word >>> (8 * width * (i % perWord))) & mask) >>> 0;
  });
}

/** n new keys. `split(key, 3)` shares none with `split(key, 2)`. */
export function splitKey(key: ThreefryKey, n: number): ThreefryKey[] {
  const words = randomWords(key, 2 * n);
  return Array.from({ length: n }, (_, i) => [words[2 * i]!, words[2 * i + 1]!] as const);
}

/** word / 2^32 in float32, before the clamp: words from 0xffffff80 up give 1. */
export function dividedWord(word: number): number {
  return Math.fround(word) / 2 ** 32;
}

/** A uniform float32 in [0, 1): the quotient, at most 1 - 2^-24. */
export function unitUniform(word: number): number {
  return Math.min(dividedWord(word), 1 - 2 ** -24);
}

/** `count` uniforms in [low, high) of a type: clamped below 1 in that type, then range and low applied with two roundings. */
export function uniform(key: ThreefryKey, count: number, type: FloatType, low = 0, high = 1): number[] {
  const range = type.round(Math.fround(high - low));
  return Array.from(randomWords(key, count), (word) => {
    const u = type.round(Math.min(dividedWord(word), type.belowOne));
    return type.round(Math.fround(type.round(Math.fround(range * u)) + low));
  });
}

/** MLX's implicit key: each draw without a key splits the state, uses the second half and keeps the first. */
export class KeySequence {
  private state: ThreefryKey;

  constructor(seed: bigint) {
    this.state = threefryKey(seed);
  }

  /** The state that the next draw splits. */
  get current(): ThreefryKey {
    return this.state;
  }

  /** The key of the next draw; one step, whatever the size of the draw. */
  next(): ThreefryKey {
    const [kept, used] = splitKey(this.state, 2);
    this.state = kept!;
    return used!;
  }
}
