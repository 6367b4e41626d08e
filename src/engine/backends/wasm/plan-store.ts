/**
 * Checked programs in the shared memory: the code as it is, and the weight table as pairs (address, dtype) of int32.
 *
 * Invariants: plans that share a weight table share its copy here; memory is given back when the last of them is freed.
 */
import { PlumblineError } from '../../../errors.js';
import { checkProgram } from '../../plan/check.js';
import type { PlanHeader } from '../../plan/decode.js';
import type { LoadedPlan, MemoryBlock, PlanProgram } from '../backend.js';
import type { SharedHeap } from './shared-heap.js';

interface SharedTable {
  readonly block: MemoryBlock;
  plans: number;
}

export class WasmPlan implements LoadedPlan {
  readonly program: PlanProgram;
  /** The store whose memory it lies in. */
  readonly store: PlanStore;
  readonly header: PlanHeader;
  /** Where the header and the ops stand. */
  readonly code: MemoryBlock;
  readonly table: MemoryBlock;
  /** Scratch bytes of a thread by the most tokens that rows may see. */
  readonly scratch = new Map<number, number>();
  readonly #release: () => void;
  #held = true;

  constructor(
    store: PlanStore,
    program: PlanProgram,
    header: PlanHeader,
    code: MemoryBlock,
    table: MemoryBlock,
    release: () => void,
  ) {
    this.store = store;
    this.program = program;
    this.header = header;
    this.code = code;
    this.table = table;
    this.#release = release;
  }

  get freed(): boolean {
    return !this.#held;
  }

  free(): void {
    if (!this.#held) return;
    this.#held = false;
    this.#release();
  }
}

export class PlanStore {
  readonly #heap: SharedHeap;
  /** By the identity of the addresses, which a weight table hands out once. */
  readonly #tables = new Map<Float64Array, SharedTable>();

  constructor(heap: SharedHeap) {
    this.#heap = heap;
  }

  /** Throws plan_invalid, out_of_memory. */
  load(program: PlanProgram): WasmPlan {
    const { header } = checkProgram(program);
    const code = this.#heap.allocate(program.code.byteLength, 'a plan');
    try {
      copyWords(code, program.code);
      const table = this.#retainTable(program);
      return new WasmPlan(this, program, header, code, table.block, () => {
        code.free();
        this.#releaseTable(program.weightAddresses, table);
      });
    } catch (thrown) {
      code.free();
      throw thrown;
    }
  }

  #retainTable({ weightAddresses, weightDtypes }: PlanProgram): SharedTable {
    let table = this.#tables.get(weightAddresses);
    if (!table) {
      const far = weightAddresses.findIndex((address) => address >= 2 ** 32);
      if (far >= 0) {
        throw new PlumblineError('plan_invalid', `weight ${far}: address ${weightAddresses[far]} is above 4 GiB`);
      }
      const words = new Int32Array(2 * weightAddresses.length);
      weightAddresses.forEach((address, index) => {
        words[2 * index] = address; // wraps above 2 GiB; the kernels read it unsigned
        words[2 * index + 1] = weightDtypes[index]!;
      });
      table = { block: this.#heap.allocate(words.byteLength, 'a weight table'), plans: 0 };
      copyWords(table.block, words);
      this.#tables.set(weightAddresses, table);
    }
    table.plans++;
    return table;
  }

  #releaseTable(key: Float64Array, table: SharedTable): void {
    if (--table.plans > 0) return;
    this.#tables.delete(key);
    table.block.free();
  }
}

function copyWords(block: MemoryBlock, words: Int32Array): void {
  new Int32Array(block.bytes.buffer, block.address, words.length).set(words);
}
