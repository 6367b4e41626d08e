import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { temporaryFolder } from '../../test/support/repository.js';
import { floatBytes } from '../../test/support/write-safetensors.js';
import { PlumblineError } from '../errors.js';
import { memorySource, ReadOnlyFile, type ByteSource } from './file.js';
import { heldIfSmall, RowTable, type TablePiece } from './gather.js';
import type { FloatDtype } from './tensor.js';

/** Row r of the whole table: integers of 8 bits, which every dtype holds exactly, different from row to row. */
function rowValues(row: number, width: number): number[] {
  return Array.from({ length: width }, (_, i) => ((row * width + i) * 37) % 255);
}

function pieceOf(
  dtype: FloatDtype,
  firstRow: number,
  rows: number,
  width: number,
  lead: number,
  wrap: (bytes: Uint8Array) => ByteSource,
): TablePiece {
  const values = Array.from({ length: rows }, (_, r) => rowValues(firstRow + r, width)).flat();
  const data = floatBytes(dtype, values);
  const bytes = new Uint8Array(lead + data.byteLength);
  bytes.set(data, lead);
  return { source: wrap(bytes), byteOffset: lead, rows, dtype };
}

function stack(
  rowCounts: readonly number[],
  width: number,
  dtypes: readonly FloatDtype[],
  wrap: (bytes: Uint8Array) => ByteSource,
): RowTable {
  let first = 0;
  const pieces = rowCounts.map((rows, i) => {
    const piece = pieceOf(dtypes[i % dtypes.length] as FloatDtype, first, rows, width, 3 * i, wrap);
    first += rows;
    return piece;
  });
  return new RowTable(pieces, width);
}

const counted = (bytes: Uint8Array): ByteSource & { reads: number; bytesRead: number } => {
  const inner = memorySource(bytes);
  return {
    byteLength: inner.byteLength,
    mergeGap: 64,
    reads: 0,
    bytesRead: 0,
    read(offset, into) {
      this.reads += 1;
      this.bytesRead += into.byteLength;
      inner.read(offset, into);
    },
  };
};

test('any ids in any order over any stack of pieces give their own rows', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 40 }), { minLength: 1, maxLength: 6 }),
      fc.integer({ min: 1, max: 9 }),
      fc.uniqueArray(fc.constantFrom<FloatDtype>('BF16', 'F16', 'F32'), { minLength: 1 }),
      fc.array(fc.nat(), { maxLength: 60 }),
      fc.boolean(),
      (rowCounts, width, dtypes, picks, merging) => {
        const table = stack(rowCounts, width, dtypes, merging ? counted : memorySource);
        const total = rowCounts.reduce((a, b) => a + b, 0);
        assert.equal(table.rowCount, total);
        const ids = total === 0 ? [] : picks.map((pick) => pick % total);
        const out = new Float32Array(ids.length * width);
        table.rows(ids, out);
        assert.deepEqual(
          Array.from(out),
          ids.flatMap((id) => rowValues(id, width)),
        );
      },
    ),
  );
});

test('the asynchronous form gives the same rows and obeys its signal', async () => {
  const table = stack([500, 0, 37], 8, ['BF16'], memorySource);
  const ids = Int32Array.from({ length: 3000 }, (_, i) => (i * 7919) % 537);
  const expected = new Float32Array(3000 * 8);
  table.rows(ids, expected);
  const out = new Float32Array(3000 * 8);
  await table.gather(ids, out);
  assert.deepEqual(out, expected);
  await assert.rejects(table.gather(ids, out, AbortSignal.abort()), { code: 'request_cancelled' });
});

test('a file gives the same rows as memory', (t) => {
  const folder = temporaryFolder(t, 'gather');
  let made = 0;
  const files: ReadOnlyFile[] = [];
  const wrap = (bytes: Uint8Array): ByteSource => {
    const path = join(folder, `piece-${made++}`);
    writeFileSync(path, bytes);
    const file = ReadOnlyFile.open(path);
    files.push(file);
    return file;
  };
  const ids = [0, 99, 100, 5000, 5000, 1, 102, 4999];
  const fromFile = new Float32Array(ids.length * 160);
  const fromMemory = new Float32Array(ids.length * 160);
  stack([100, 2, 6000], 160, ['BF16', 'F32'], wrap).rows(ids, fromFile);
  stack([100, 2, 6000], 160, ['BF16', 'F32'], memorySource).rows(ids, fromMemory);
  for (const file of files) file.close();
  assert.deepEqual(fromFile, fromMemory);
});

test('equal and neighbouring rows share a read, distant ones do not drag the table in', () => {
  const piece = pieceOf('BF16', 0, 10_000, 16, 0, counted);
  const source = piece.source as ReturnType<typeof counted>;
  const table = new RowTable([piece], 16);
  table.rows([7, 8, 8, 7, 10, 9], new Float32Array(6 * 16));
  assert.equal(source.reads, 1);
  assert.equal(source.bytesRead, 4 * 32);
  source.bytesRead = 0;
  table.rows([0, 5000, 9999], new Float32Array(3 * 16));
  assert.equal(source.bytesRead, 3 * 32);
});

test('a request for the whole table stays within a bounded span', () => {
  const piece = pieceOf('F32', 0, 50_000, 16, 0, counted);
  const source = piece.source as ReturnType<typeof counted>;
  new RowTable([piece], 16).rows(
    Array.from({ length: 50_000 }, (_, i) => i),
    new Float32Array(50_000 * 16),
  );
  assert.equal(source.bytesRead, 50_000 * 64);
  assert.ok(source.reads >= (50_000 * 64) / (256 * 1024));
});

test('ids outside the table, a wrong output and a piece outside its source are refused before anything is read', () => {
  const piece = pieceOf('BF16', 0, 10, 4, 0, counted);
  const source = piece.source as ReturnType<typeof counted>;
  const table = new RowTable([piece], 4);
  const refused = (run: () => void): void => {
    assert.throws(run, (error) => error instanceof PlumblineError && error.code === 'internal_error');
  };
  for (const id of [10, -1, 0.5, NaN]) refused(() => table.rows([3, id], new Float32Array(8)));
  refused(() => table.rows([3], new Float32Array(8)));
  refused(() => new RowTable([{ ...piece, rows: 11 }], 4));
  assert.equal(source.reads, 0);
});

test('a small table is read once, piece by piece; a larger one only where rows are asked for', () => {
  const [first, second] = [pieceOf('BF16', 0, 5, 4, 3, counted), pieceOf('F32', 5, 6, 4, 8, counted)];
  const sources = [first.source, second.source] as ReturnType<typeof counted>[];
  const table = new RowTable(heldIfSmall([first, second], 4), 4);
  const out = new Float32Array(3 * 4);
  for (let turn = 0; turn < 2; turn++) table.rows([10, 0, 4], out);
  const expected = [10, 0, 4].flatMap((row) => rowValues(row, 4));
  assert.deepEqual([...out], expected);
  assert.deepEqual(sources.map(({ reads, bytesRead }) => [reads, bytesRead]).flat(), [1, 5 * 4 * 2, 1, 6 * 4 * 4]);
  const many = Array.from({ length: 5000 }, (_, i) => (i * 7) % 11); // more than are copied at a time
  const wide = new Float32Array(5000 * 4);
  table.rows(many, wide);
  assert.deepEqual(
    [...wide],
    many.flatMap((row) => rowValues(row, 4)),
  );
  for (const [ids, words] of [
    [[11], 4],
    [[1.5], 4],
    [[1], 5],
  ] as const) {
    assert.throws(() => table.rows([...ids], new Float32Array(words)), PlumblineError);
  }
  const large = { ...first, rows: 8 * 1024 * 1024 };
  assert.equal(heldIfSmall([large], 4)[0], large);
});
