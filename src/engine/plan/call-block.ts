/**
 * The call block: the small table of rows that a plan is replayed with. One block is filled per execution: the rows
 * (token id, position, sequence), which rows go through the head, and for every sequence its slabs and its page table.
 *
 * Invariants: rows of a sequence are contiguous and in ascending position; the block is self-describing (ops.ts
 * CALL_HEADER), so its sections may grow from call to call; int32 and float64 sections never overlap.
 */
import type { MemoryBlock } from '../backends/backend.js';
import { CALL_HEADER, CALL_HEADER_WORDS, SEQUENCE_RECORD_WORDS } from './ops.js';

export interface CallSequence {
  readonly tokens: readonly number[] | Int32Array;
  /** Position of the first row: tokens that the sequence already holds. */
  readonly startPosition: number;
  readonly fixedIn: number;
  readonly fixedOut: number;
  /** Addresses of the pages that cover positions 0 … startPosition + tokens - 1. */
  readonly pages: readonly number[];
  /** Which of this sequence's rows go through the head, ascending, 0-based within the sequence. */
  readonly outRows: readonly number[];
}

const at = Object.fromEntries(CALL_HEADER.map((name, index) => [name, index])) as Record<
  (typeof CALL_HEADER)[number],
  number
>;

export interface CallSizes {
  readonly rows: number;
  readonly outRows: number;
  readonly sequences: number;
  readonly pages: number;
}

/** Bytes of a block for such a call. */
export function callBlockBytes(sizes: CallSizes): number {
  const ints = CALL_HEADER_WORDS + 3 * sizes.rows + sizes.outRows + SEQUENCE_RECORD_WORDS * sizes.sequences;
  return 8 * (Math.ceil(ints / 2) + 2 * sizes.sequences + sizes.pages);
}

/** What a batch of sequences needs in a call block. */
export function callSizes(sequences: readonly CallSequence[]): CallSizes {
  const sum = (of: (s: CallSequence) => number): number => sequences.reduce((total, s) => total + of(s), 0);
  return {
    rows: sum((s) => s.tokens.length),
    outRows: sum((s) => s.outRows.length),
    sequences: sequences.length,
    pages: sum((s) => s.pages.length),
  };
}

/** Fills `block` (at least callBlockBytes(callSizes(sequences))) for one execution. */
export function fillCallBlock(
  block: MemoryBlock,
  sequences: readonly CallSequence[],
  sizes: CallSizes = callSizes(sequences),
): void {
  const { buffer, byteOffset, byteLength } = block.bytes;
  const ints = new Int32Array(buffer, byteOffset, byteLength >> 2);
  const doubles = new Float64Array(buffer, byteOffset, byteLength >> 3);
  const tokensAt = CALL_HEADER_WORDS;
  const positionsAt = tokensAt + sizes.rows;
  const sequenceOfRowAt = positionsAt + sizes.rows;
  const outRowsAt = sequenceOfRowAt + sizes.rows;
  const sequencesAt = outRowsAt + sizes.outRows;
  const slabsAt = Math.ceil((sequencesAt + SEQUENCE_RECORD_WORDS * sizes.sequences) / 2);
  ints.fill(0, 0, CALL_HEADER_WORDS);
  ints[at.rows] = sizes.rows;
  ints[at.outRows] = sizes.outRows;
  ints[at.sequences] = sizes.sequences;
  ints[at.tokensAt] = tokensAt;
  ints[at.positionsAt] = positionsAt;
  ints[at.sequenceOfRowAt] = sequenceOfRowAt;
  ints[at.outRowsAt] = outRowsAt;
  ints[at.sequencesAt] = sequencesAt;
  ints[at.slabsAt] = slabsAt;
  let row = 0;
  let out = 0;
  let page = slabsAt + 2 * sizes.sequences;
  sequences.forEach((sequence, index) => {
    const record = sequencesAt + SEQUENCE_RECORD_WORDS * index;
    ints[record] = row;
    ints[record + 1] = sequence.tokens.length;
    ints[record + 2] = sequence.startPosition;
    ints[record + 3] = page;
    for (const outRow of sequence.outRows) ints[outRowsAt + out++] = row + outRow;
    for (let i = 0; i < sequence.tokens.length; i++, row++) {
      ints[tokensAt + row] = sequence.tokens[i]!;
      ints[positionsAt + row] = sequence.startPosition + i;
      ints[sequenceOfRowAt + row] = index;
    }
    doubles[slabsAt + 2 * index] = sequence.fixedIn;
    doubles[slabsAt + 2 * index + 1] = sequence.fixedOut;
    for (const address of sequence.pages) doubles[page++] = address;
  });
}

/** Asks the running execution of this block to stop before its next op. */
export function cancelCall(block: MemoryBlock): void {
  new Int32Array(block.bytes.buffer, block.bytes.byteOffset, CALL_HEADER_WORDS)[at.cancel] = 1;
}
