import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exp2F64, expF32, expF64, logF64, sigmoidF32, softplusF64 } from './exp.js';

/** Distance of y from the true value in units in the last place of float32. */
function ulps(y: number, truth: number): number {
  const unit = 2 ** Math.max(Math.floor(Math.log2(Math.abs(truth))) - 23, -149);
  return Math.abs(y - truth) / unit;
}

test('expF32 is within 1.5 ulp of e^x over its whole range, subnormal results included', () => {
  let worst = 0;
  for (let x = -103.9; x < 88.7; x += 0.0137)
    worst = Math.max(worst, ulps(expF32(Math.fround(x)), Math.exp(Math.fround(x))));
  assert.ok(worst < 1.5, `worst ${worst}`);
});

test('expF32 edges', () => {
  assert.equal(expF32(0), 1);
  assert.equal(expF32(-0), 1);
  assert.equal(expF32(Infinity), Infinity);
  assert.equal(expF32(89), Infinity);
  assert.equal(expF32(-Infinity), 0);
  assert.equal(expF32(-104), 0);
  assert.ok(Number.isNaN(expF32(NaN)));
});

test('float64 exponentials and logarithm are within 2e-16 relative of the platform', () => {
  for (let x = -700; x < 700; x += 0.37) assert.ok(Math.abs(expF64(x) / Math.exp(x) - 1) < 4e-16, `exp ${x}`);
  for (let x = -100; x < 100; x += 0.37) assert.ok(Math.abs(exp2F64(x) / 2 ** x - 1) < 4e-16, `exp2 ${x}`);
  for (let x = 1; x < 1e6; x *= 1.0173)
    assert.ok(Math.abs(logF64(x) - Math.log(x)) <= 4e-16 * Math.max(1, Math.log(x)), `log ${x}`);
  assert.equal(exp2F64(10), 1024);
  assert.equal(softplusF64(21), 21);
  assert.ok(Math.abs(softplusF64(0) - Math.LN2) < 1e-15);
});

test('sigmoidF32 saturates to 0 and 1 and keeps NaN', () => {
  assert.equal(sigmoidF32(0), 0.5);
  assert.equal(sigmoidF32(200), 1);
  assert.equal(sigmoidF32(-200), 0);
  assert.ok(Number.isNaN(sigmoidF32(NaN)));
});
