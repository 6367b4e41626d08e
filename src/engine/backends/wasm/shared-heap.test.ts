import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../../../errors.js';
import type { MemoryBlock } from '../backend.js';
import { kernelMemory } from './kernels.js';
import { SharedHeap } from './shared-heap.js';

const MIB = 2 ** 20;

test('blocks are aligned, zeroed whatever stood there before, and keep their bytes to themselves', () => {
  const step = fc.record({ bytes: fc.integer({ min: 0, max: 70_000 }), give: fc.option(fc.nat(20)) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (list) => {
      const heap = new SharedHeap(kernelMemory(), 512);
      const held: { readonly block: MemoryBlock; readonly fill: number }[] = [];
      for (const [index, { bytes, give }] of list.entries()) {
        const block = heap.allocate(bytes, 'a test');
        const fill = (index % 255) + 1;
        assert.equal(block.address % 64, 0);
        assert.ok(block.address >= 512);
        assert.equal(block.bytes.length, bytes);
        assert.ok(block.bytes.every((byte) => byte === 0));
        block.bytes.fill(fill);
        held.push({ block, fill });
        if (give !== null) held.splice(give % held.length, 1)[0]!.block.free();
        for (const { block: other, fill: own } of held) assert.ok(other.bytes.every((byte) => byte === own));
        assert.equal(heap.allocated, held.reduce((sum, { block: { bytes: b } }) => sum + b.length, 0)); // prettier-ignore
      }
    }),
    { numRuns: 25 },
  );
});

test('growing leaves earlier blocks readable and shared', () => {
  const memory = kernelMemory();
  const heap = new SharedHeap(memory, 512);
  const early = heap.allocate(1000, 'early');
  const late = heap.allocate(40 * MIB, 'late');
  early.bytes[999] = 7;
  late.bytes[40 * MIB - 1] = 8;
  assert.equal(new Uint8Array(memory.buffer)[early.address + 999], 7);
  assert.equal(new Uint8Array(memory.buffer)[late.address + 40 * MIB - 1], 8);
});

test('a second free of a block is nothing', () => {
  const heap = new SharedHeap(kernelMemory(), 512);
  const block = heap.allocate(100, 'a test');
  block.free();
  const other = heap.allocate(100, 'a test');
  block.free();
  assert.equal(heap.allocated, 100);
  other.bytes.fill(3);
  assert.notEqual(heap.allocate(100, 'a test').address, other.address);
});

test('memory beyond the limit is out_of_memory, with the figures, the purpose and advice; nothing is lost by it', () => {
  const heap = new SharedHeap(kernelMemory(), 512, 32 * MIB);
  const block = heap.allocate(20 * MIB, 'weights');
  const refused = (error: unknown): boolean => {
    assert.ok(error instanceof PlumblineError);
    assert.equal(error.code, 'out_of_memory');
    assert.match(error.message, /no 20 MiB for the state of a session: .*holds 20 MiB of at most 32 MiB/);
    assert.match(error.message, /--backend cpu/);
    return true;
  };
  assert.throws(() => heap.allocate(20 * MIB, 'the state of a session'), refused);
  assert.equal(heap.allocated, 20 * MIB);
  block.free();
  heap.allocate(31 * MIB, 'the same range, and more').free();
  assert.throws(() => new SharedHeap(kernelMemory(), 512).allocate(2 ** 33, 'too much'), /out_of_memory|no 8192 MiB/);
});

test('the last byte below 4 GiB can be had', () => {
  const heap = new SharedHeap(kernelMemory(), 512);
  const block = heap.allocate(65535 * 65536 - 512, 'everything');
  block.bytes[block.bytes.length - 1] = 9;
  assert.equal(block.bytes.at(-1), 9);
  assert.throws(() => heap.allocate(1, 'one more'), PlumblineError);
});
