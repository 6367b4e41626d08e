import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ropeFrequencies, ropeTable } from './rope.js';

const near = (actual: number, expected: number, limit = 1e-7): void => {
  assert.ok(Math.abs(actual - expected) <= limit * Math.max(1, Math.abs(expected)), `${actual} is not ${expected}`);
};

test('plain frequencies are powers of theta, rounded to float32', () => {
  const frequencies = ropeFrequencies({ theta: 10000 }, 8);
  assert.deepEqual([...frequencies], [1, Math.fround(0.1), Math.fround(0.01), Math.fround(0.001)]);
});

test('YaRN keeps fast pairs, divides slow ones by the factor, and blends those between', () => {
  // The published settings: 64 channels, theta 160000, factor 16 of 65536 tokens, beta 32 and 1.
  const yarn = { factor: 16, originalPositions: 65536, betaFast: 32, betaSlow: 1, attentionFactor: 1 };
  const plain = ropeFrequencies({ theta: 160000 }, 64);
  const scaled = ropeFrequencies({ theta: 160000, yarn }, 64);
  // corr(32) = 64 ln(65536 / 64 pi) / (2 ln 160000) = 15.4..., corr(1) = 24.7...: pairs to 15 stay, from 25 on are slow.
  for (let i = 0; i <= 15; i++) assert.equal(scaled[i], plain[i], `pair ${i}`);
  for (let i = 25; i < 32; i++) near(scaled[i]!, plain[i]! / 16);
  for (let i = 16; i < 25; i++) {
    const ramp = (i - 15) / 10;
    near(scaled[i]!, plain[i]! * (1 - ramp + ramp / 16));
  }
});

test('a ramp between equal bounds is a step just behind them', () => {
  const yarn = { factor: 4, originalPositions: 4, betaFast: 1, betaSlow: 1, attentionFactor: 1 };
  // corr(1) is below 0: the lower bound is 0, and so is the upper one.
  const scaled = ropeFrequencies({ theta: 10000, yarn }, 4);
  assert.deepEqual([...scaled], [1, Math.fround(0.01 / 4)]);
});

test('the angle is the float32 product of position and frequency, which shows at long positions', () => {
  const [theta, rotary, position] = [160000, 4, 1_000_003];
  const table = ropeTable({ theta }, rotary, position + 1);
  const frequency = Math.fround(160000 ** -0.5);
  const angle = Math.fround(position * frequency);
  assert.notEqual(angle, position * frequency);
  assert.equal(table[position * rotary + 1], Math.fround(Math.cos(angle)));
  assert.equal(table[position * rotary + 3], Math.fround(Math.sin(angle)));
  assert.ok(Math.abs(Math.cos(angle) - Math.cos(position * 160000 ** -0.5)) > 1e-5);
});

test('a written attention factor multiplies cosines and sines, and none is made up', () => {
  const yarn = { factor: 16, originalPositions: 64, betaFast: 32, betaSlow: 1, attentionFactor: 1 };
  const plain = ropeTable({ theta: 160000, yarn }, 8, 5);
  const scaled = ropeTable({ theta: 160000, yarn: { ...yarn, attentionFactor: 1.5 } }, 8, 5);
  assert.equal(plain[0], 1);
  plain.forEach((value, i) => near(scaled[i]!, 1.5 * value));
});
