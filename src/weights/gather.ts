/**
 * Rows of a table that is too large to load: a few positioned reads for the rows that are asked for, and nothing else.
 *
 * The table lies in one or several pieces that are stacked in the order given; row ids index the stack. A request is
 * answered in table order: equal ids are read once, and neighbours closer than the source's merge gap share a read.
 *
 * Invariants: row i of the result depends on ids[i] alone (any order, any repetition, any cut of the request gives the
 * same floats); memory is one span buffer of bounded size, whatever the size of table and request.
 */
import { PlumblineError } from '../errors.js';
import { FLOAT_BYTES, toFloat32 } from './convert.js';
import type { ByteSource } from './file.js';
import type { FloatDtype } from './tensor.js';

/** A run of rows in a byte source; rows follow each other without padding. */
export interface TablePiece {
  readonly source: ByteSource;
  /** First byte of the piece's first row in the source. */
  readonly byteOffset: number;
  /** Rows in this piece; pieces may differ, and may be empty. */
  readonly rows: number;
  readonly dtype: FloatDtype;
}

/** Most bytes of one read. */
const MAX_SPAN_BYTES = 256 * 1024;
/** How long `gather` may hold the event loop at a time, in milliseconds. */
const SLICE_MS = 4;

export class RowTable {
  readonly rowCount: number;
  private readonly starts: readonly number[];
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
  }

  /**
   * Gather rows, synchronously.
   *
   * @param ids n row ids in [0, rowCount)
   * @param out float32 [n, width], exact conversions of the stored rows
   */
  rows(ids: readonly number[] | Int32Array, out: Float32Array): void {
    const plan = this.order(ids, out);
    for (let at = 0; at < plan.length;) at = this.readSpan(plan, at, out);
  }

  /** The same, giving the event loop back every few milliseconds. `signal` stops it between reads. */
  async gather(ids: readonly number[] | Int32Array, out: Float32Array, signal?: AbortSignal): Promise<void> {
    const plan = this.order(ids, out);
    let sliceEnd = performance.now() + SLICE_MS;
    for (let at = 0; at < plan.length;) {
      if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'reading table rows was cancelled');
      at = this.readSpan(plan, at, out);
      if (performance.now() < sliceEnd) continue;
      await new Promise<void>((resolve) => setImmediate(resolve));
      sliceEnd = performance.now() + SLICE_MS;
    }
  }

  /** What is to be read, by ascending row id; equal ids by place in the request. Checks everything before any read. */
  private order(ids: readonly number[] | Int32Array, out: Float32Array): RowOrder {
    const n = ids.length;
    if (out.length !== n * this.width) {
      throw new PlumblineError('internal_error', `${n} rows of ${this.width} do not fill an output of ${out.length}`);
    }
    // id · n + place sorts as a plain number: exact while it stays below 2^53.
    const keys = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const id = ids[i] as number;
      if (!Number.isInteger(id) || id < 0 || id >= this.rowCount) {
        throw new PlumblineError('internal_error', `row ${id} is outside a table of ${this.rowCount} rows`);
      }
      keys[i] = id * n + i;
    }
    if (!Number.isSafeInteger(this.rowCount * n))
      throw new PlumblineError('internal_error', `${n} rows are too many for one request`);
    keys.sort();
    return { length: n, row: (at) => Math.floor((keys[at] as number) / n), place: (at) => (keys[at] as number) % n };
  }

  /** Read the longest run of the plan that one span holds, from `first` on; returns where the next run begins. */
  private readSpan(plan: RowOrder, first: number, out: Float32Array): number {
    const firstRow = plan.row(first);
    const pieceIndex = this.pieceOf(firstRow);
    const piece = this.pieces[pieceIndex] as TablePiece;
    const pieceStart = this.starts[pieceIndex] as number;
    const rowBytes = this.width * FLOAT_BYTES[piece.dtype];
    let lastRow = firstRow;
    let next = first + 1;
    for (; next < plan.length; next++) {
      const row = plan.row(next);
      if (row >= pieceStart + piece.rows) break;
      if ((row - lastRow - 1) * rowBytes > piece.source.mergeGap) break;
      if (row !== lastRow && (row - firstRow + 1) * rowBytes > MAX_SPAN_BYTES) break;
      lastRow = row;
    }
    const span = this.spanOf((lastRow - firstRow + 1) * rowBytes);
    piece.source.read(piece.byteOffset + (firstRow - pieceStart) * rowBytes, span);
    for (let at = first; at < next; at++) {
      const from = (plan.row(at) - firstRow) * rowBytes;
      const to = plan.place(at) * this.width;
      toFloat32(piece.dtype, span.subarray(from, from + rowBytes), out.subarray(to, to + this.width));
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

interface RowOrder {
  readonly length: number;
  row(at: number): number;
  /** Which row of the output it is. */
  place(at: number): number;
}
