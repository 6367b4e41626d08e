import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exp2RoundedF32, expRoundedF32 } from './correctly-rounded.js';
import { exp2F64, expF64 } from './exp.js';
import { f32FromBits } from './rounding.js';

const BITS = 220n;
const ONE = 1n << BITS;
const LN2 = naturalLog2();

/** ln 2 = sum of 1 / (k 2^k), in fixed point. */
function naturalLog2(): bigint {
  let sum = 0n;
  for (let k = 1n; k <= BITS; k++) sum += ONE / (k << k);
  return sum;
}

/** A float64 as fixed point, exact for the magnitudes used here. */
function fixed(x: number): bigint {
  const scaled = x * 2 ** 170;
  return BigInt(scaled) << (BITS - 170n);
}

/** e^r in fixed point for |r| < 1. */
function expFixed(r: bigint): bigint {
  let term = ONE;
  let sum = ONE;
  for (let k = 1n; term !== 0n; k++) {
    term = (term * r) / (ONE * k);
    sum += term;
  }
  return sum;
}

/** Whether y is the float32 nearest to value * 2^n, by comparing with the two midpoints around y. */
function isNearest(y: number, value: bigint, n: number): boolean {
  const words = new Uint32Array(new Float32Array([y]).buffer);
  const neighbour = (by: number): number => new Float32Array(Uint32Array.of(words[0]! + by).buffer)[0]!;
  const midpoint = (z: number): bigint => fixed(((y + z) / 2) * 2 ** -n);
  return midpoint(neighbour(-1)) < value && value < midpoint(neighbour(1));
}

/** float32 arguments whose float64 exponential lies within 2^-45 (relative) of a float32 midpoint: the hard ones. */
function hardCases(count: number, exponential: (x: number) => number, range: number): number[] {
  const found: number[] = [];
  for (let i = 1; found.length < count; i++) {
    const x = Math.fround(range * Math.sin(i * 12.9898));
    const y = exponential(x);
    const low = Math.fround(y * (1 - 2 ** -40));
    if (low !== Math.fround(y * (1 + 2 ** -40))) found.push(x);
  }
  return found;
}

/**
 * All float32 arguments from 2^-11 to 88 (exp) and 124 (exp2), of both signs, whose result lies within about 2^-51
 * (relative) of a float32 midpoint: there the float64 polynomial alone rounds some the wrong way.
 */
const HARDEST_EXP = [0x3ab13d4f, 0xbb32cf64, 0xbbf0edf1, 0xc16912cd, 0xc236bd8c];
const HARDEST_EXP2 = [0x3b429d37, 0xbaec2b40, 0xbcf3a937, 0x3a07857c, 0x3c02a9ad, 0x3ea7097a, 0xbe1f29de, 0xbf2c7b43];

test('expRoundedF32 is the nearest float32, also where float64 cannot tell', () => {
  const easy = Array.from({ length: 500 }, (_, i) => Math.fround(-80 + i * 0.32));
  for (const x of [...easy, ...hardCases(40, expF64, 60), ...HARDEST_EXP.map(f32FromBits)]) {
    const n = Math.round(x / Math.LN2);
    assert.ok(isNearest(expRoundedF32(x), expFixed(fixed(x) - BigInt(n) * LN2), n), `x = ${x}`);
  }
  assert.equal(expRoundedF32(0), 1);
  assert.equal(expRoundedF32(Infinity), Infinity);
  assert.equal(expRoundedF32(-Infinity), 0);
  assert.ok(Number.isNaN(expRoundedF32(NaN)));
});

test('exp2RoundedF32 is the nearest float32, and exact at integers', () => {
  const easy = Array.from({ length: 500 }, (_, i) => Math.fround(-100 + i * 0.401));
  for (const x of [...easy, ...hardCases(40, exp2F64, 90), ...HARDEST_EXP2.map(f32FromBits)]) {
    const n = Math.round(x);
    if (n === x) continue;
    assert.ok(isNearest(exp2RoundedF32(x), expFixed((fixed(x - n) * LN2) / ONE), n), `x = ${x}`);
  }
  for (let n = -149; n <= 127; n++) assert.equal(exp2RoundedF32(n), 2 ** n);
});
