/**
 * What an op sees while it runs: typed views of the workspace, of weights, of the states' slabs and pages, and the table
 * of rows of the call.
 *
 * Invariants: views are made from addresses at the moment of use, so nothing here outlives an execution; weights are
 * widened to float32 without rounding; elements of pages are rounded to the plan's kv type when they are stored.
 */
import { fromF16Bits, toBf16Bits } from '../../../numerics/rounding.js';
import type { PlanHeader } from '../../plan/decode.js';
import { CALL_HEADER, SEQUENCE_RECORD_WORDS } from '../../plan/ops.js';
import type { MemoryBlock, PlanProgram } from '../backend.js';
import type { Arithmetic } from './arithmetic.js';
import { asFloat32, asUint16, type ReferenceMemory } from './memory.js';

/** Rows of one sequence in a call: rows rowStart … rowStart + rowCount - 1, at consecutive positions. */
export interface SequenceRows {
  readonly rowStart: number;
  readonly rowCount: number;
  readonly startPosition: number;
  readonly fixedIn: number;
  readonly fixedOut: number;
  /** Index of the first page address among the call block's float64 words. */
  readonly pagesAt: number;
}

const at = Object.fromEntries(CALL_HEADER.map((name, index) => [name, index])) as Record<
  (typeof CALL_HEADER)[number],
  number
>;

/** The int32 and float64 words of a call block, by the names of its header. */
export class CallView {
  readonly rows: number;
  readonly tokens: Int32Array;
  readonly positions: Int32Array;
  readonly outRows: Int32Array;
  readonly sequences: readonly SequenceRows[];
  readonly #ints: Int32Array;
  readonly #doubles: Float64Array;
  readonly #sequenceOfRow: Int32Array;

  constructor(block: MemoryBlock) {
    const { buffer, byteOffset, byteLength } = block.bytes;
    const ints = (this.#ints = new Int32Array(buffer, byteOffset, byteLength >> 2));
    const doubles = (this.#doubles = new Float64Array(buffer, byteOffset, byteLength >> 3));
    const section = (start: number, length: number): Int32Array => ints.subarray(ints[start], ints[start]! + length);
    this.rows = ints[at.rows]!;
    this.tokens = section(at.tokensAt, this.rows);
    this.positions = section(at.positionsAt, this.rows);
    this.outRows = section(at.outRowsAt, ints[at.outRows]!);
    this.#sequenceOfRow = section(at.sequenceOfRowAt, this.rows);
    this.sequences = Array.from({ length: ints[at.sequences]! }, (_, index) => {
      const [rowStart, rowCount, startPosition, pagesAt] = ints.subarray(
        ints[at.sequencesAt]! + SEQUENCE_RECORD_WORDS * index,
      );
      const slabs = ints[at.slabsAt]! + 2 * index;
      return {
        rowStart: rowStart!,
        rowCount: rowCount!,
        startPosition: startPosition!,
        pagesAt: pagesAt!,
        fixedIn: doubles[slabs]!,
        fixedOut: doubles[slabs + 1]!,
      };
    });
  }

  sequenceOf(row: number): SequenceRows {
    return this.sequences[this.#sequenceOfRow[row]!]!;
  }

  pageAddress(sequence: SequenceRows, page: number): number {
    return this.#doubles[sequence.pagesAt + page]!;
  }

  get cancelled(): boolean {
    return this.#ints[at.cancel] !== 0;
  }

  set opsDone(count: number) {
    this.#ints[at.opsDone] = count;
  }
}

export class OpContext {
  readonly math: Arithmetic;
  readonly call: CallView;
  readonly pageTokens: number;
  readonly #kvBytes: number;
  readonly #memory: ReferenceMemory;
  readonly #program: PlanProgram;
  readonly #workspace: Uint8Array;

  constructor(
    memory: ReferenceMemory,
    program: PlanProgram,
    header: PlanHeader,
    math: Arithmetic,
    workspace: Uint8Array,
    call: CallView,
  ) {
    this.#memory = memory;
    this.#program = program;
    this.#workspace = workspace;
    this.#kvBytes = header.kvType === 1 ? 2 : 4;
    this.math = math;
    this.call = call;
    this.pageTokens = header.pageTokens;
  }

  /** Rows of the trunk (0), selected rows (1), or n rows for each of the trunk (n >= 2): the `rows` field of an op. */
  rowCount(rows: number): number {
    if (rows === 1) return this.call.outRows.length;
    return Math.max(rows, 1) * this.call.rows;
  }

  /** `words` float32 of the workspace from word offset `buffer`. */
  floats(buffer: number, words: number): Float32Array {
    return new Float32Array(this.#workspace.buffer, this.#workspace.byteOffset + 4 * buffer, words);
  }

  /** The same words as int32. */
  ints(buffer: number, words: number): Int32Array {
    return new Int32Array(this.#workspace.buffer, this.#workspace.byteOffset + 4 * buffer, words);
  }

  /** Elements from … from + length - 1 of a weight, widened to float32; a view where it is float32 already. */
  weight(index: number, from: number, length: number): Float32Array {
    const dtype = this.#program.weightDtypes[index]!;
    const elementBytes = dtype === 0 ? 4 : 2;
    const bytes = this.#memory.resolve(
      this.#program.weightAddresses[index]! + from * elementBytes,
      length * elementBytes,
    );
    if (dtype === 0) return asFloat32(bytes);
    return dtype === 1 ? widenBf16(asUint16(bytes)) : Float32Array.from(asUint16(bytes), fromF16Bits);
  }

  /** `length` float32 of a fixed slab from byte offset `state`. */
  slab(address: number, state: number, length: number): Float32Array {
    return asFloat32(this.#memory.resolve(address + state, 4 * length));
  }

  /** Elements of the page that covers `position`, counted from byte offset `base` in the page, widened to float32. */
  readPage(sequence: SequenceRows, position: number, base: number, element: number, length: number): Float32Array {
    const bytes = this.#pageBytes(sequence, position, base, element, length);
    return this.#kvBytes === 2 ? widenBf16(asUint16(bytes)) : asFloat32(bytes);
  }

  /** Stores values there, rounded to the kv type. */
  writePage(sequence: SequenceRows, position: number, base: number, element: number, values: Float32Array): void {
    const bytes = this.#pageBytes(sequence, position, base, element, values.length);
    if (this.#kvBytes === 2) asUint16(bytes).set(Uint16Array.from(values, toBf16Bits));
    else asFloat32(bytes).set(values);
  }

  #pageBytes(sequence: SequenceRows, position: number, base: number, element: number, length: number): Uint8Array {
    const page = this.call.pageAddress(sequence, Math.floor(position / this.pageTokens));
    return this.#memory.resolve(page + base + element * this.#kvBytes, length * this.#kvBytes);
  }
}

function widenBf16(bits: Uint16Array): Float32Array {
  const words = new Uint32Array(bits.length);
  for (let i = 0; i < bits.length; i++) words[i] = bits[i]! << 16;
  return new Float32Array(words.buffer);
}
