import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FLOAT_TYPES } from '../../numerics/mlx/float-type.js';
import {
  dividedWord,
  KeySequence,
  randomBits,
  randomWords,
  splitKey,
  threefryHash,
  threefryKey,
  uniform,
  unitUniform,
} from './threefry.js';

test('the high word of a seed comes first in its key', () => {
  assert.deepEqual(threefryKey(7n), [0, 7]);
  assert.deepEqual(threefryKey((3n << 32n) + 5n), [3, 5]);
});

test('Threefry-2x32-20 known answers (Random123)', () => {
  assert.deepEqual(threefryHash([0, 0], [0, 0]), [0x6b200159, 0x99ba4efe]);
  const ones = 0xffffffff;
  assert.deepEqual(threefryHash([ones, ones], [ones, ones]), [0x1cb996fc, 0xbb002be7]);
  assert.deepEqual(threefryHash([0x13198a2e, 0x03707344], [0x243f6a88, 0x85a308d3]), [0xc4923a9c, 0x483df7a0]);
});

test('only the element count decides the counters: a longer draw is no extension, an odd middle word stands alone', () => {
  const key = threefryKey(7n);
  assert.notDeepEqual(Array.from(randomWords(key, 6)).slice(0, 5), Array.from(randomWords(key, 5)));
  assert.equal(randomWords(key, 5)[2], threefryHash(key, [2, 0])[0]);
  assert.equal(randomWords(key, 1)[0], threefryHash(key, [0, 0])[0]);
  assert.equal(randomWords(key, 0).length, 0);
});

test('narrow bits are the little-endian bytes of the words', () => {
  const key = threefryKey(42n);
  const bytes = Array.from(new Uint8Array(randomWords(key, 2).buffer));
  assert.deepEqual(randomBits(key, 7, 1), bytes.slice(0, 7));
  assert.deepEqual(randomBits(key, 3, 2), Array.from(new Uint16Array(randomWords(key, 2).buffer)).slice(0, 3));
});

test('splits of different sizes share no key', () => {
  const key = threefryKey(1n);
  const two = splitKey(key, 2).map(String);
  assert.ok(splitKey(key, 3).every((other) => !two.includes(String(other))));
});

test('the implicit sequence uses the second half of each split and keeps the first', () => {
  const sequence = new KeySequence(9n);
  const [kept, used] = splitKey(threefryKey(9n), 2);
  assert.deepEqual(sequence.next(), used);
  assert.deepEqual(sequence.current, kept);
});

test('uniforms stay below 1 in every type, and the largest words need the clamp', () => {
  assert.equal(dividedWord(0xffffff80), 1);
  assert.equal(unitUniform(0xffffff80), 1 - 2 ** -24);
  assert.equal(unitUniform(0), 0);
  assert.equal(unitUniform(1), 2 ** -32);
  for (const type of Object.values(FLOAT_TYPES)) {
    for (const u of uniform(threefryKey(3n), 4096, type)) assert.ok(u >= 0 && u <= type.belowOne);
  }
});
