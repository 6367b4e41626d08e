/**
 * Rows of a table that may be too large to load: a few positioned reads for the rows that are asked for, and nothing else.
 *
 * The table lies in one or several pieces that are stacked in the order given; row ids index the stack. A request is
 * answered in table order: equal ids are read once, and neighbours closer than the source's merge gap share a read.
 *
 * Invariants: row i of the result depends on ids[i] alone (any order, any repetition, any cut of the request gives the
 * same floats); memory is one span buffer of bounded size, whatever the size of table and request.
 */
import { PlumblineError } from '../errors.js';
import { FLOAT_BYTES, floatWords, widen, type FloatWords } from './convert.js';
import { memorySource, type ByteSource } from './file.js';
import type { FloatDtype } from './tensor.js';

/** A run of rows in a byte source; rows follow each other without padding. */
export interface TablePiece {
  readonly source: ByteSource;
  /** First byte of the piece's first row in the source. */
  readonly byteOffset: number;
  /** Rows in this piece; pieces may differ, and may be empty. */
  readonly rows: number;
  readonly dtype: FloatDtype;
  /** The rows as bytes, where they are in memory anyway. */
  readonly held?: Uint8Array | undefined;
}

/** A table of at most so many bytes is held in memory: the calls that read a row cost more than the row. */
const SMALL_TABLE_BYTES = 16 * 1024 * 1024;
/** Most bytes of one read. */
const MAX_SPAN_BYTES = 256 * 1024;
/** Most rows that are copied from memory without giving the event loop back. */
const MOST_COPIED = 4096;
/** How long `gather` may hold the event loop at a time, in milliseconds. */
const SLICE_MS = 4;

/** The pieces of a table of `width` columns; those of a small table as copies in memory, read now. */
export function heldIfSmall(pieces: readonly TablePiece[], width: number): readonly TablePiece[] {
  const sizes = pieces.map(({ rows, dtype }) => rows * width * FLOAT_BYTES[dtype]);
  if (sizes.reduce((sum, size) => sum + size, 0) > SMALL_TABLE_BYTES) return pieces;
  return pieces.map((piece, i) => {
    const bytes = new Uint8Array(sizes[i]!);
    piece.source.read(piece.byteOffset, bytes);
    return { ...piece, source: memorySource(bytes), byteOffset: 0, held: bytes };
  });
}

export class RowTable {
  readonly rowCount: number;
  private readonly starts: readonly number[];
  /** The elements of pieces that lie in memory, so that a row needs no read. */
  private readonly held: readonly (FloatWords | undefined)[];
  private span = new Uint8Array(0);

  /**
   * @param pieces in stacking order (shards: by their number, not by their name)
   * @param width elements of a row
   */
  constructor(
    private readonly pieces: readonly TablePiece[],
    readonly width: number,
  ) {
    const starts: number[] = [];
    let rows = 0;
    for (const piece of pieces) {
      const bytes = piece.rows * width * FLOAT_BYTES[piece.dtype];
      if (piece.byteOffset < 0 || piece.byteOffset + bytes > piece.source.byteLength) {
        throw new PlumblineError(
          'internal_error',
          `a table piece of ${bytes} bytes at ${piece.byteOffset} leaves its source of ${piece.source.byteLength}`,
        );
      }
      starts.push(rows);
      rows += piece.rows;
    }
    this.starts = starts;
    this.rowCount = rows;
    this.held = pieces.map(({ held, rows: count, dtype }) => held && floatWords(dtype, held, count * width));
  }

  /**
   * Gather rows, synchronously.
   *
   * @param ids n row ids in [0, rowCount)
   * @param out float32 [n, width], exact conversions of the stored rows
   */
  rows(ids: readonly number[] | Int32Array, out: Float32Array): void {
    if (this.copyHeld(ids, out)) return;
    const request = this.order(ids, out);
    for (let at = 0; at < request.rows.length;) at = this.readSpan(request, at);
  }

  /** The same, giving the event loop back every few milliseconds. `signal` stops it between reads. */
  async gather(ids: readonly number[] | Int32Array, out: Float32Array, signal?: AbortSignal): Promise<void> {
    if (this.copyHeld(ids, out)) return;
    const request = this.order(ids, out);
    let sliceEnd = performance.now() + SLICE_MS;
    for (let at = 0; at < request.rows.length;) {
      if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'reading table rows was cancelled');
      at = this.readSpan(request, at);
      if (performance.now() < sliceEnd) continue;
      await new Promise<void>((resolve) => setImmediate(resolve));
      sliceEnd = performance.now() + SLICE_MS;
    }
  }

  /** Fills `out` from memory, in the order of the request. False where the table is not all there, or much is asked for. */
  private copyHeld(ids: readonly number[] | Int32Array, out: Float32Array): boolean {
    const { width, starts, held } = this;
    if (ids.length > MOST_COPIED || held.includes(undefined)) return false;
    this.checkLength(ids.length, out);
    for (const id of ids) this.checkRow(id);
    const bits = new Uint32Array(out.buffer, out.byteOffset, out.length);
    for (let i = 0; i < ids.length; i++) {
      const index = this.pieceOf(ids[i]!);
      widen(this.pieces[index]!.dtype, held[index]!, (ids[i]! - starts[index]!) * width, bits, i * width, width);
    }
    return true;
  }

  private checkLength(n: number, out: Float32Array): void {
    if (out.length === n * this.width) return;
    throw new PlumblineError('internal_error', `${n} rows of ${this.width} do not fill an output of ${out.length}`);
  }

  private checkRow(id: number): void {
    if (Number.isInteger(id) && id >= 0 && id < this.rowCount) return;
    throw new PlumblineError('internal_error', `row ${id} is outside a table of ${this.rowCount} rows`);
  }

  /** The request in table order. Checks everything before anything is read. */
  private order(ids: readonly number[] | Int32Array, out: Float32Array): RowRequest {
    const n = ids.length;
    this.checkLength(n, out);
    if (!Number.isSafeInteger(this.rowCount * n)) {
      throw new PlumblineError(
        'internal_error',
        `${n} rows of a table of ${this.rowCount} are too many for one request`,
      );
    }
    // id · n + place is an exact integer that sorts as a plain number.
    const keys = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const id = ids[i] as number;
      this.checkRow(id);
      keys[i] = id * n + i;
    }
    keys.sort();
    const rows = new Float64Array(n);
    const places = new Uint32Array(n);
    for (let at = 0; at < n; at++) {
      const key = keys[at] as number;
      const row = Math.floor(key / n);
      rows[at] = row;
      places[at] = key - row * n;
    }
    return { rows, places, out: new Uint32Array(out.buffer, out.byteOffset, out.length) };
  }

  /** Read the longest run of the request that one span holds, from `first` on; returns where the next run begins. */
  private readSpan({ rows, places, out }: RowRequest, first: number): number {
    const { width } = this;
    const firstRow = rows[first] as number;
    const pieceIndex = this.pieceOf(firstRow);
    const piece = this.pieces[pieceIndex] as TablePiece;
    const pieceStart = this.starts[pieceIndex] as number;
    const rowBytes = width * FLOAT_BYTES[piece.dtype];
    const lastAllowed = Math.min(
      pieceStart + piece.rows - 1,
      firstRow + Math.max(Math.floor(MAX_SPAN_BYTES / rowBytes), 1) - 1,
    );
    let lastRow = firstRow;
    let next = first + 1;
    for (; next < rows.length; next++) {
      const row = rows[next] as number;
      if (row > lastAllowed || (row - lastRow - 1) * rowBytes > piece.source.mergeGap) break;
      lastRow = row;
    }
    const span = this.spanOf((lastRow - firstRow + 1) * rowBytes);
    piece.source.read(piece.byteOffset + (firstRow - pieceStart) * rowBytes, span);
    const words = floatWords(piece.dtype, span, (lastRow - firstRow + 1) * width);
    for (let at = first; at < next; at++) {
      widen(piece.dtype, words, ((rows[at] as number) - firstRow) * width, out, (places[at] as number) * width, width);
    }
    return next;
  }

  private spanOf(bytes: number): Uint8Array {
    if (this.span.byteLength < bytes) this.span = new Uint8Array(bytes);
    return this.span.subarray(0, bytes);
  }

  /** Index of the piece that holds a row: the last one that starts at or before it and is not empty. */
  private pieceOf(row: number): number {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((this.starts[middle] as number) <= row) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** A request by ascending row id. */
interface RowRequest {
  readonly rows: Float64Array;
  /** Which row of the output each of them is. */
  readonly places: Uint32Array;
  /** The output as float32 bits. */
  readonly out: Uint32Array;
}
