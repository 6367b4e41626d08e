import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PlumblineError } from '../../../errors.js';
import { asFloat32, asUint16, ReferenceMemory } from './memory.js';

const failsWith =
  (code: string) =>
  (error: unknown): boolean =>
    error instanceof PlumblineError && error.code === code;

test('an address resolves to the bytes of its block, and blocks are aligned and zeroed', () => {
  const memory = new ReferenceMemory();
  const blocks = [1, 100, 64, 7].map((size) => memory.allocate(size, 'test'));
  for (const [index, block] of blocks.entries()) {
    assert.equal(block.address % 64, 0);
    assert.ok(block.bytes.every((byte) => byte === 0));
    block.bytes[block.bytes.length - 1] = index + 1;
  }
  blocks.forEach(({ address, bytes }, index) => {
    assert.deepEqual([...memory.resolve(address + bytes.length - 1, 1)], [index + 1]);
    memory.resolve(address, bytes.length)[0] = 99;
    assert.equal(bytes[0], 99, 'a view, not a copy');
  });
});

test('an access that leaves its block, or names memory that was given back, fails', () => {
  const memory = new ReferenceMemory();
  const [a, b] = [memory.allocate(100, 'a'), memory.allocate(100, 'b')];
  for (const [address, length] of [
    [a.address - 1, 1],
    [a.address + 1, 100],
    [a.address + 0.5, 1],
    [b.address + 100, 1],
    [0, 4],
    [Number.NaN, 4],
  ] as const) {
    assert.throws(() => memory.resolve(address, length), failsWith('backend_failed'), `${address}`);
  }
  assert.equal(memory.allocated, 200);
  a.free();
  a.free();
  assert.equal(memory.allocated, 100);
  assert.throws(() => memory.resolve(a.address, 4), failsWith('backend_failed'));
  assert.equal(memory.resolve(b.address, 100).length, 100);
  assert.ok(memory.allocate(100, 'c').address > b.address, 'addresses are not given out twice');
});

test('memory that cannot be had is out_of_memory with the figure and the purpose', () => {
  assert.throws(
    () => new ReferenceMemory().allocate(2 ** 60, 'a test'),
    (error) => failsWith('out_of_memory')(error) && /a test/.test(String(error)),
  );
});

test('unaligned words are read through a copy', () => {
  const bytes = new Uint8Array(12);
  bytes.set(new Uint8Array(Float32Array.of(1.5).buffer), 3);
  assert.equal(asFloat32(bytes.subarray(3, 7))[0], 1.5);
  assert.equal(asUint16(bytes.subarray(5, 7))[0], 0x3fc0);
});
