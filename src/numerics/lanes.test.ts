import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fmaF32, laneDot, laneSum, mulAddF32 } from './lanes.js';
import { f32FromBits } from './rounding.js';

/** Exact value of a float32 as an integer multiple of 2^-149. */
function units(x: number): bigint {
  return BigInt(x * 2 ** 100 * 2 ** 49);
}

/** Rounds an exact multiple of 2^-298 to float32, ties to even, by integer arithmetic alone. */
function roundExact(value: bigint): number {
  if (value === 0n) return 0;
  const negative = value < 0n;
  const magnitude = negative ? -value : value;
  const bits = magnitude.toString(2).length;
  const drop = BigInt(Math.max(bits - 24, 149)); // the last place is 2^-149 at least
  let kept = magnitude >> drop;
  const rest = magnitude - (kept << drop);
  const half = 1n << (drop - 1n);
  if (rest > half || (rest === half && (kept & 1n) === 1n)) kept += 1n;
  const result = Number(kept) * 2 ** (Number(drop) - 298);
  return negative ? -result : result;
}

/** Holds fmaF32 against exact integers. */
function check(a: number, b: number, c: number): void {
  const exact = units(a) * units(b) + (units(c) << 149n);
  const expected = roundExact(exact);
  if (Math.abs(expected) >= 2 ** 128) return;
  assert.equal(fmaF32(a, b, c), exact === 0n ? 0 : expected, `${a} * ${b} + ${c}`);
}

function randomBits(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state ^ (state >>> 15)) >>> 0;
  };
}

test('fmaF32 equals exact integer arithmetic rounded once, ties and subnormals included', () => {
  const next = randomBits(7);
  const finite = (exponentFrom: number, exponents: number): number =>
    f32FromBits(((next() & 0x807fffff) | ((exponentFrom + (next() % exponents)) << 23)) >>> 0);
  for (let n = 0; n < 20000; n++) check(finite(100, 50), finite(100, 50), finite(80, 100));
  for (let n = 0; n < 5000; n++) check(finite(0, 70), finite(55, 20), finite(0, 3)); // results among the subnormals
});

test('fmaF32 is right where the float64 sum rounds onto a float32 tie', () => {
  // Just below and just above half of the last place of 1: the 30th bit after it is lost in the float64 sum.
  const nearHalf = [
    [2 ** 15 - 1, (2 ** 15 + 1) * 2 ** -54],
    [13325, 80581 * 2 ** -54], // 13325 * 80581 = 2^30 + 1
  ] as const;
  let roundedTwice = 0;
  for (const [a, b] of nearHalf) {
    for (const c of [1, 1 + 2 ** -23, 1.5, 2 - 2 ** -23]) {
      for (const signs of [0, 1, 2, 3]) {
        for (const shift of [-60, -1, 0, 1, 40]) {
          const scaled = [a * (signs & 1 ? -1 : 1), b * 2 ** shift, c * 2 ** shift * (signs & 2 ? -1 : 1)] as const;
          check(...scaled);
          if (fmaF32(...scaled) !== Math.fround(scaled[0] * scaled[1] + scaled[2])) roundedTwice++;
        }
      }
    }
  }
  assert.ok(roundedTwice >= 40, `rounding twice differs in ${roundedTwice} of 160 cases`);
});

test('fmaF32 edges', () => {
  assert.equal(fmaF32(Infinity, 1, 1), Infinity);
  assert.ok(Number.isNaN(fmaF32(Infinity, 0, 1)));
  assert.ok(Number.isNaN(fmaF32(Infinity, 1, -Infinity)));
  assert.ok(Number.isNaN(fmaF32(1, 1, NaN)));
  assert.ok(Object.is(fmaF32(-(2 ** -149), 2 ** -149, 0), -0), 'an underflowed product keeps its sign');
  assert.equal(fmaF32(2 ** 100, 2 ** 100, 0), Infinity);
  // The greatest float32 plus just under half of its last place stays finite.
  const most = f32FromBits(0x7f7fffff);
  assert.equal(fmaF32(Math.fround(2 ** 103 - 2 ** 79), 1, most), most);
  assert.equal(mulAddF32(1 + 2 ** -23, 1 - 2 ** -23, -1), 0, 'the product is rounded before the sum');
  assert.equal(fmaF32(1 + 2 ** -23, 1 - 2 ** -23, -1), -(2 ** -46));
});

test('a dot product uses sixteen lanes and the fixed tree', () => {
  for (const length of [1, 15, 16, 17, 40, 64]) {
    const a = Float32Array.from({ length }, (_, k) => Math.sin(k + 1) * 3);
    const b = Float32Array.from({ length }, (_, k) => Math.cos(5 * k));
    for (const law of ['fma', 'mul-add'] as const) {
      const step = law === 'fma' ? fmaF32 : mulAddF32;
      const lane = (j: number): number => {
        let sum = 0;
        for (let k = j; k < length; k += 16) sum = step(a[k]!, b[k]!, sum);
        return sum;
      };
      const fl = Math.fround;
      const four = (j: number): number => fl(fl(lane(j) + lane(j + 8)) + fl(lane(j + 4) + lane(j + 12)));
      const expected = fl(fl(four(0) + four(2)) + fl(four(1) + four(3)));
      assert.equal(laneDot(a, 0, b, 0, length, law), expected, `${law} ${length}`);
    }
    assert.equal(laneSum(a, 0, length), laneDot(a, 0, new Float32Array(length).fill(1), 0, length, 'mul-add'));
  }
});

test('the zero padding of a partial group clears a negative zero', () => {
  const a = new Float32Array(17).fill(-(2 ** -149));
  const b = new Float32Array(17).fill(2 ** -149);
  assert.ok(Object.is(laneDot(a, 0, b, 0, 17), 0));
  assert.ok(Object.is(laneDot(a, 0, b, 0, 16), -0));
});
