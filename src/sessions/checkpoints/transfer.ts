/**
 * State between memory and files: large pieces, straight from and into the memory of the values, with a checksum over each
 * unit (a page, a slab) and without holding up the event loop.
 *
 * Invariants: neighbours in a file go together in one call; a call moves at most a few MiB, after which timers and sockets
 * get their turn; several reads are under way at a time, so that the checksum of one piece is taken while others come in.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PlumblineError } from '../../errors.js';
import type { OpenFile } from './file-layer.js';
import type { Checksum } from './checksum.js';

/** Bytes of one reading call: each goes through the event loop once, which costs as much as reading a part of it. */
const READ_PIECE = 16 * 1024 * 1024;
/** Bytes of one writing call, and of a checksum that is taken on the event loop. */
const PIECE = 4 * 1024 * 1024;
/** Views of one call. */
const MOST_VIEWS = 512;
const READERS = 3;

/** Bytes of a file that belong together under one checksum. */
export interface Unit {
  readonly file: OpenFile;
  readonly at: number;
  readonly bytes: Uint8Array;
  readonly checksum: number;
}

/** Reads units into their places. @returns the first that does not hold, or nothing. Throws what reading throws, request_cancelled */
export async function readUnits(
  units: readonly Unit[],
  checksum: Checksum,
  signal: AbortSignal | undefined,
): Promise<Unit | undefined> {
  const batches = batchesOf(units);
  let next = 0;
  let bad: Unit | undefined;
  let failed = false;
  const reader = async (): Promise<void> => {
    while (next < batches.length && bad === undefined && !failed) {
      const batch = batches[next++]!;
      try {
        const found = await readBatch(batch, checksum, signal);
        bad ??= found; // another reader may have found one meanwhile
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const outcomes = await Promise.allSettled(Array.from({ length: READERS }, reader));
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  return bad;
}

async function readBatch(
  batch: readonly Unit[],
  checksum: Checksum,
  signal: AbortSignal | undefined,
): Promise<Unit | undefined> {
  const [first] = batch;
  if (first === undefined) return undefined;
  throwIfCancelled(signal);
  if (batch.length > 1 || first.bytes.byteLength <= READ_PIECE) {
    const views = batch.map(({ bytes }) => bytes);
    const sums = await first.file.readSummed(views, first.at, checksum, 0);
    return batch.find((unit, i) => sums[i] !== unit.checksum);
  }
  let found = 0;
  for (const piece of piecesOf(first.bytes, READ_PIECE)) {
    throwIfCancelled(signal);
    const at = first.at + (piece.byteOffset - first.bytes.byteOffset);
    found = (await first.file.readSummed([piece], at, checksum, found))[0]!;
  }
  return found === first.checksum ? undefined : first;
}

/** Runs of units that lie behind each other in one file; a unit longer than a piece stands alone. */
function batchesOf(units: readonly Unit[]): Unit[][] {
  const batches: Unit[][] = [];
  let bytes = 0;
  for (const unit of units) {
    const batch = batches.at(-1);
    const last = batch?.at(-1);
    const follows = last?.file === unit.file && last.at + last.bytes.byteLength === unit.at;
    if (batch && follows && bytes + unit.bytes.byteLength <= READ_PIECE && batch.length < MOST_VIEWS) batch.push(unit);
    else {
      batches.push([unit]);
      bytes = 0;
    }
    bytes += unit.bytes.byteLength;
  }
  return batches;
}

/** The checksum of each view, of any size. */
export async function checksumsOf(
  views: readonly Uint8Array[],
  checksum: Checksum,
  signal?: AbortSignal,
): Promise<number[]> {
  const found: number[] = [];
  let sinceTurn = 0;
  for (const view of views) {
    let sum = 0;
    for (const piece of piecesOf(view)) {
      if (sinceTurn >= PIECE) {
        await nextTurn();
        throwIfCancelled(signal);
        sinceTurn = 0;
      }
      sum = checksum(piece, sum);
      sinceTurn += piece.byteLength;
    }
    found.push(sum);
  }
  return found;
}

/**
 * Writes views one after the other from byte `at`. @param pace awaited before each piece, with its bytes
 * @returns where they end. Throws what writing throws, request_cancelled
 */
export async function writeViews(
  file: OpenFile,
  views: readonly Uint8Array[],
  at: number,
  pace: (bytes: number) => Promise<void>,
  signal?: AbortSignal,
): Promise<number> {
  let batch: Uint8Array[] = [];
  let bytes = 0;
  const flush = async (): Promise<void> => {
    if (batch.length === 0) return;
    await pace(bytes);
    throwIfCancelled(signal);
    await file.writeAll(batch, at);
    at += bytes;
    batch = [];
    bytes = 0;
  };
  for (const view of views) {
    for (const piece of piecesOf(view)) {
      if (bytes + piece.byteLength > PIECE || batch.length >= MOST_VIEWS) await flush();
      batch.push(piece);
      bytes += piece.byteLength;
    }
  }
  await flush();
  return at;
}

function* piecesOf(bytes: Uint8Array, most = PIECE): Generator<Uint8Array> {
  for (let from = 0; from < bytes.byteLength; from += most) yield bytes.subarray(from, from + most);
}

function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'a session transfer was cancelled');
}
