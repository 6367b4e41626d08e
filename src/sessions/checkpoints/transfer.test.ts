import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import { zlibChecksum } from './checksum.js';
import { diskFiles } from './file-layer.js';
import { checksumsOf, readUnits, writeViews, type Unit } from './transfer.js';

const MIB = 1 << 20;

test('units of every size come back whole, and one flipped bit in any piece of a long one is found', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-transfer-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'file');
  const sizes = [0, 1, 100, 4 * MIB, 4 * MIB + 1, 33 * MIB + 3, 5, 5];
  const bytes = new Uint8Array(sizes.reduce((sum, size) => sum + size, 0));
  for (let i = 0, state = 1; i < bytes.length; i += 7)
    bytes[i] = (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24;
  const parts = sizes.map((size, i) => {
    const at = sizes.slice(0, i).reduce((sum, before) => sum + before, 0);
    return { at, bytes: bytes.subarray(at, at + size) };
  });
  const checksums = await checksumsOf(
    parts.map((part) => part.bytes),
    zlibChecksum,
  );
  assert.deepEqual(
    checksums,
    parts.map((part) => crc32(part.bytes)),
  );

  const written = diskFiles.open(path, 'create');
  const paces: number[] = [];
  const end = await writeViews(
    written,
    parts.map((part) => part.bytes),
    0,
    async (count) => void paces.push(count),
  );
  written.close();
  assert.equal(end, bytes.length);
  assert.equal(
    paces.reduce((sum, count) => sum + count, 0),
    bytes.length,
  );
  assert.ok(Math.max(...paces) <= 4 * MIB, 'no piece is longer than what is paced');

  const read = async () => {
    const file = diskFiles.open(path, 'read');
    const units = parts.map(({ at, bytes: { length } }, i): Unit => ({
      file,
      at,
      bytes: new Uint8Array(length),
      checksum: checksums[i]!,
    }));
    try {
      return { units, bad: await readUnits(units, zlibChecksum, undefined) };
    } finally {
      file.close();
    }
  };
  const whole = await read();
  assert.equal(whole.bad, undefined);
  whole.units.forEach((unit, i) => assert.ok(Buffer.from(unit.bytes).equals(parts[i]!.bytes), `unit ${i}`));
  const long = parts[5]!;
  for (const at of [
    long.at,
    long.at + 4 * MIB,
    long.at + 5 * MIB,
    long.at + 9 * MIB + 2,
    parts[3]!.at,
    parts[7]!.at + 4,
  ]) {
    const flipped = bytes.slice();
    flipped[at]! ^= 4;
    writeFileSync(path, flipped);
    const { units, bad } = await read();
    assert.ok(
      bad !== undefined && at >= bad.at && at < bad.at + bad.bytes.length,
      `a flip at ${at}: ${units.indexOf(bad!)}`,
    );
  }
});

test('a read that is cancelled ends with that error, and an unreadable file with its own', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-transfer-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'file');
  writeFileSync(path, new Uint8Array(1000));
  const file = diskFiles.open(path, 'read');
  t.after(() => file.close());
  const unit: Unit = { file, at: 0, bytes: new Uint8Array(1000), checksum: crc32(new Uint8Array(1000)) };
  await assert.rejects(readUnits([unit], zlibChecksum, AbortSignal.abort()), { code: 'request_cancelled' });
  await assert.rejects(readUnits([{ ...unit, at: 1 }], zlibChecksum, undefined), { code: 'session_file_invalid' });
});
