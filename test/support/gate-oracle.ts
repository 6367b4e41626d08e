/**
 * What gates are judged by: the recorded sigmoid tables, and float32 gates by the runtime's own exponentials.
 *
 * Invariants: nothing of src/numerics/gate-tables.ts or of its exponentials is used here; a float64 exponential is taken
 * only where all values within 4 units in its last place round alike, else a fixed-point series of 240 bits decides.
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { fromBf16Bits, roundBf16, toBf16Bits } from '../../src/numerics/rounding.js';
import type { Lowering } from './gate-sites.js';
import { fixture } from './repository.js';

function recorded(name: string): Uint16Array {
  const bytes = gunzipSync(readFileSync(fixture('mlx', `${name}.u16.gz`)));
  return Uint16Array.from({ length: 65536 }, (_, bits) => bytes.readUInt16LE(2 * bits));
}

/** Sigmoids by the bits of the input: of Metal in bfloat16, alone and fused with a multiplication, and of the half model. */
export const RECORDED: Readonly<Record<Lowering | 'half', Uint16Array>> = {
  standalone: recorded('metal-sigmoid-bf16-eager'),
  fused: recorded('metal-sigmoid-bf16-fused'),
  half: recorded('metal-sigmoid-f16-model'),
};

/** The recorded sigmoid of a bfloat16 value. */
export const recordedSigmoid = (x: number, lowering: Lowering): number =>
  fromBf16Bits(RECORDED[lowering][toBf16Bits(x)]!);

const fl = Math.fround;

/** log2 e in float32, 0x3fb8aa3b. */
const LOG2E = fl(1.44269502162933349609375);

/** e^a as float32 for float32 a >= 0, in the way of a lowering, correctly rounded. */
export function exponential(a: number, lowering: Lowering): number {
  const b = lowering === 'fused' ? fl(a * LOG2E) : a;
  const y = lowering === 'fused' ? 2 ** b : Math.exp(b);
  const [below, above] = [fl(y * (1 - 2 ** -50)), fl(y * (1 + 2 ** -50))];
  if (below === above) return above;
  return roundFixed(expFixed(lowering === 'fused' ? (fixed(b) * LN2) >> BITS : fixed(b)));
}

/** Bits behind the point of the numbers that decide near a rounding boundary. */
const BITS = 240n;
const ONE = 1n << BITS;
const LN2 = Array.from({ length: Number(BITS) }, (_, k) => (ONE >> BigInt(k + 1)) / BigInt(k + 1)).reduce(
  (s, t) => s + t,
);

const fixed = (x: number): bigint => BigInt(x * 2 ** 149) << (BITS - 149n);

function expFixed(r: bigint): bigint {
  let sum = ONE;
  for (let n = 1n, term = r; term > 0n; n++, term = ((term * r) >> BITS) / n) sum += term;
  return sum;
}

/** To float32: the leading 40 bits and whether anything is behind them decide the rounding. */
function roundFixed(y: bigint): number {
  const dropped = BigInt(y.toString(2).length - 40);
  const kept = Number((y >> dropped) | 1n); // e^x is irrational, so something is behind them
  return fl(kept * 2 ** Number(dropped - BITS));
}

/** 1 / (1 + e^-x), every step rounded to float32. */
export function sigmoidByStepsF32(x: number, lowering: Lowering): number {
  const y = fl(1 / fl(1 + exponential(Math.abs(x), lowering)));
  return x < 0 ? y : fl(1 - y);
}

/** The contract that no lowering has: the sigmoid in float32, rounded to bfloat16 once. */
export const sigmoidRoundedOnce = (x: number): number => roundBf16(1 / (1 + Math.exp(-x)));
