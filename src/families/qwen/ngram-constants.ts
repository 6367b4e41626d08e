/**
 * The constants of the n-gram hash: multipliers from splitmix64, head sizes from consecutive primes. They follow from
 * the configuration alone; a checkpoint stores copies, and a copy that differs means another hash than this one.
 *
 * Source: the class that defines `qwen4_exp`, as published. Everything wraps in unsigned 64-bit arithmetic.
 */
import type { PleConfig } from './config-types.js';

/** Hash constants of one PLE layer. */
export interface NgramConstants {
  /** G odd multipliers, one a shift; `multiplier · id < 2^63` for every id below V. */
  readonly multipliers: readonly bigint[];
  /** A primes: rows of each head's part of the table. */
  readonly sizes: readonly number[];
  /** A first rows: running sums of `sizes`. */
  readonly offsets: readonly number[];
  /** Rows of the whole table, padding included. */
  readonly rows: number;
}

type NgramConfig = Pick<PleConfig, 'ngramSize' | 'heads' | 'tableSizeBase' | 'tableRowDivisor' | 'seed'>;

/** Row ids of a table are int32. */
export const MAX_TABLE_ROWS = 2 ** 31;

const GOLDEN_GAMMA = 0x9e3779b97f4a7c15n;
/** Distance between the seeds of two PLE layers. */
const LAYER_SEED_STEP = 10007n;

/**
 * @param pleIndex place of the layer in the ascending list of PLE layers, from 0: the primes run on from layer to layer
 * @param vocabSize V
 */
export function ngramConstants(config: NgramConfig, pleIndex: number, vocabSize: number): NgramConstants {
  const maxProduct = (1n << 63n) - 1n;
  const half = maxProduct / BigInt(Math.max(vocabSize, 1)) / 2n;
  const bound = half > 1n ? half : 1n;
  const base = BigInt(config.seed) + LAYER_SEED_STEP * BigInt(pleIndex);
  const multipliers = Array.from(
    { length: config.ngramSize },
    (_, shift) => 2n * (splitmix64(base + GOLDEN_GAMMA * BigInt(shift + 1)) % bound) + 1n,
  );
  const sizes = primesFrom(config.tableSizeBase, (pleIndex + 1) * config.heads).slice(pleIndex * config.heads);
  const offsets: number[] = [];
  let total = 0;
  for (const size of sizes) {
    offsets.push(total);
    total += size;
  }
  return { multipliers, sizes, offsets, rows: Math.ceil(total / config.tableRowDivisor) * config.tableRowDivisor };
}

/** Vigna's splitmix64 as a function of its state before the increment. */
function splitmix64(state: bigint): bigint {
  let z = BigInt.asUintN(64, state + GOLDEN_GAMMA);
  z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}

const SIEVE_BLOCK = 1 << 16;

/** The first `count` primes that are at least `from`, by a sieve of Eratosthenes over blocks; from < 2^31. */
export function primesFrom(from: number, count: number): number[] {
  const primes: number[] = [];
  for (let low = Math.max(from, 2); primes.length < count; low += SIEVE_BLOCK) {
    const composite = new Uint8Array(SIEVE_BLOCK);
    const high = low + SIEVE_BLOCK;
    for (const p of smallPrimes(Math.floor(Math.sqrt(high)))) {
      for (let multiple = Math.max(p * p, Math.ceil(low / p) * p); multiple < high; multiple += p)
        composite[multiple - low] = 1;
    }
    for (let i = 0; i < SIEVE_BLOCK && primes.length < count; i++) if (composite[i] === 0) primes.push(low + i);
  }
  return primes;
}

/** All primes up to `limit`, which is a square root and so below 2^16. */
function smallPrimes(limit: number): number[] {
  const composite = new Uint8Array(limit + 1);
  const primes: number[] = [];
  for (let p = 2; p <= limit; p++) {
    if (composite[p] !== 0) continue;
    primes.push(p);
    for (let multiple = p * p; multiple <= limit; multiple += p) composite[multiple] = 1;
  }
  return primes;
}
