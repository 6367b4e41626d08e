/** The addon's CRC-32 is zlib's, whatever the length, the alignment and the cut. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import { PlumblineError } from '../../src/errors.js';
import { zlibChecksum } from '../../src/sessions/checkpoints/checksum.js';
import { diskFilesWith } from '../../src/sessions/checkpoints/file-layer.js';
import { temporaryFolder } from '../support/repository.js';
import { fastCrc32, fastReader } from '../../src/engine/backends/cpu/index.js';

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

test('a checked read fills its views and gives their checksums, and a file that ends early is an error', async (t) => {
  const reader = fastReader();
  if (reader === undefined) return; // the plain way is taken instead
  const path = join(temporaryFolder(t, 'reads'), 'file');
  const bytes = Uint8Array.from({ length: 700_000 }, (_, i) => (i * i) >> 3);
  writeFileSync(path, bytes);
  for (const files of [diskFilesWith(reader), diskFilesWith(undefined)]) {
    const file = files.open(path, 'read');
    t.after(() => file.close());
    const views = [
      new Uint8Array(3),
      new Uint8Array(0),
      new Uint8Array(new SharedArrayBuffer(600_000)),
      new Uint8Array(7),
    ];
    const sums = await file.readSummed(views, 11, zlibChecksum, 77);
    let at = 11;
    views.forEach((view, i) => {
      const expected = bytes.subarray(at, at + view.length);
      assert.deepEqual(view.slice(), expected.slice());
      assert.equal(sums[i], crc32(expected, i === 0 ? 77 : 0));
      at += view.length;
    });
    await assert.rejects(
      file.readSummed([new Uint8Array(100)], bytes.length - 99, zlibChecksum, 0),
      (error: unknown) => error instanceof PlumblineError && error.code === 'session_file_invalid',
    );
  }
  await assert.rejects(async () => reader(1 << 20, [new Uint8Array(1)], 0, 0), /EUNKNOWN|Bad file/);
});
