/** The addon's CRC-32 is zlib's, whatever the length, the alignment and the cut. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import { fastCrc32 } from '../../src/engine/backends/cpu/index.js';

test('the checksum of the addon is that of zlib, where the machine has the instructions for it', () => {
  const fast = fastCrc32();
  if (fast === undefined) return; // zlib's own is used, and there is nothing to compare
  const bytes = new Uint8Array(5000);
  let state = 1;
  for (let i = 0; i < bytes.length; i++) bytes[i] = (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24;
  for (const length of [0, 1, 15, 16, 17, 63, 64, 511, 512, 513, 575, 576, 1023, 1024, 1090, 4096, 4900]) {
    for (const offset of [0, 1, 3, 64]) {
      const view = bytes.subarray(offset, offset + length);
      for (const before of [0, 1, 0xffffffff, 0x12345678]) {
        assert.equal(fast(view, before), crc32(view, before), `${length} bytes at ${offset}, behind ${before}`);
      }
    }
  }
  const cut = fast(bytes.subarray(1000), fast(bytes.subarray(0, 1000), 0));
  assert.equal(cut, crc32(bytes));
  const shared = new Uint8Array(new SharedArrayBuffer(2048)).fill(7);
  assert.equal(fast(shared, 0), crc32(shared.slice()));
});
