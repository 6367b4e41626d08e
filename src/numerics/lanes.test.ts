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
  const check = (a: number, b: number, c: number): void => {
    const exact = units(a) * units(b) + (units(c) << 149n);
    const expected = roundExact(exact);
    if (Math.abs(expected) >= 2 ** 128) return;
    assert.equal(fmaF32(a, b, c), exact === 0n ? 0 : expected, `${a} * ${b} + ${c}`);
  };
  for (let n = 0; n < 20000; n++) check(finite(100, 50), finite(100, 50), finite(80, 100));
  for (let n = 0; n < 5000; n++) check(finite(0, 70), finite(55, 20), finite(0, 3)); // results among the subnormals
  let doubleRounded = 0;
  for (let n = 0; n < 40000; n++) {
    // c of 24 bits plus a product just off half of its last place: the float64 sum falls on the tie
    const c = f32FromBits(((150 << 23) | (next() & 0x7fffff)) >>> 0);
    const a = 1 + 2 ** -(1 + (next() % 23));
    const b = (next() & 1 ? 1 : -1) * (1 - 2 ** -(1 + (next() % 23))) * 4 * 2 ** -(next() % 3);
    check(a, Math.fround(b), c);
    if (fmaF32(a, Math.fround(b), c) !== Math.fround(a * Math.fround(b) + c)) doubleRounded++;
  }
  for (const sign of [1, -1]) {
    // 1 + 2^-24 is a tie; the product adds or takes away 2^-60, below the float64 sum's last place
    for (const tiny of [2 ** -60, -(2 ** -60)]) {
      const a = sign * (1 + tiny * 2 ** 40);
      assert.equal(Math.fround(a), a);
      check(a, 2 ** -24, sign);
      check(2 ** -84 * sign, tiny > 0 ? 1 : -1, sign * (1 + 2 ** -23));
    }
    doubleRounded +=
      fmaF32(sign * (1 + 2 ** -23), sign * 2 ** -24 * (1 - 2 ** -23), sign) === Math.fround(sign) ? 1 : 0;
  }
  assert.ok(doubleRounded > 0, 'no case in which rounding twice differs was met');
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
