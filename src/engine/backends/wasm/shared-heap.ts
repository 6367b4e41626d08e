/**
 * The shared WebAssembly memory of one backend, handed out in blocks.
 *
 * Invariants: blocks are 64-byte aligned and zeroed; address 0 belongs to no block; the memory grows when it must and never
 * shrinks, and growing leaves every earlier view valid, because the memory is shared; memory that was never handed out is
 * zero already and is not touched here, so that it costs nothing until it is used.
 */
import { PlumblineError } from '../../../errors.js';
import type { Address, MemoryBlock } from '../backend.js';
import { FreeList, rangeBytes } from './free-list.js';
import type { WasmMemory } from './web-assembly.js';

const PAGE_BYTES = 65536;
/** One page less than 4 GiB, so that the end of every block is an address too. */
export const MAX_HEAP_BYTES = 65535 * PAGE_BYTES;
/** The memory grows by at least this much: growing is a system call. */
const GROWTH_BYTES = 16 * 1024 * 1024;

const mib = (bytes: number): string => `${Math.ceil(bytes / 2 ** 20)} MiB`;

export class SharedHeap {
  readonly #memory: WasmMemory;
  readonly #free = new FreeList();
  readonly #limit: number;
  /** Everything from here on has never been handed out. */
  #fresh: Address;
  #allocated = 0;

  /** `memory` is untouched beyond its first `reserved` bytes; `limit` is for tests. */
  constructor(memory: WasmMemory, reserved: number, limit: number = MAX_HEAP_BYTES) {
    this.#memory = memory;
    this.#limit = Math.min(limit, MAX_HEAP_BYTES);
    this.#fresh = rangeBytes(reserved);
    this.#free.give(this.#fresh, memory.buffer.byteLength - this.#fresh);
  }

  /** Bytes of the blocks that are handed out, as they were asked for. */
  get allocated(): number {
    return this.#allocated;
  }

  /** A zeroed block. Throws out_of_memory with the figures; `purpose` appears in the message. */
  allocate(byteLength: number, purpose: string): MemoryBlock {
    const address = this.takeRange(byteLength, purpose, true);
    const bytes = new Uint8Array(this.#memory.buffer, address, byteLength);
    this.#allocated += byteLength;
    let held = true;
    const free = (): void => {
      if (!held) return;
      held = false;
      this.#allocated -= byteLength;
      this.giveRange(address, byteLength);
    };
    return { address, bytes, free };
  }

  /** `byteLength` bytes without a block around them, zeroed only if asked for. Throws out_of_memory. */
  takeRange(byteLength: number, purpose: string, zeroed: boolean): Address {
    const bytes = rangeBytes(byteLength);
    const address = this.#free.take(bytes) ?? this.#grow(bytes, byteLength, purpose);
    const end = address + bytes;
    if (zeroed && address < this.#fresh) {
      new Uint8Array(this.#memory.buffer, address, Math.min(end, this.#fresh) - address).fill(0);
    }
    this.#fresh = Math.max(this.#fresh, end);
    return address;
  }

  giveRange(address: Address, byteLength: number): void {
    this.#free.give(address, rangeBytes(byteLength));
  }

  #grow(bytes: number, byteLength: number, purpose: string): Address {
    const size = this.#memory.buffer.byteLength;
    const missing = bytes - this.#free.freeBelow(size);
    const room = this.#limit - size;
    const failure = (cause?: unknown): PlumblineError =>
      new PlumblineError(
        'out_of_memory',
        `no ${mib(byteLength)} for ${purpose}: the wasm backend holds ${mib(this.#allocated)} of at most ` +
          `${mib(this.#limit)} (32-bit addresses); use --backend cpu, a shorter context, or fewer sessions`,
        { cause },
      );
    if (missing > room) throw failure();
    const wanted = Math.min(Math.max(missing, GROWTH_BYTES), room);
    const pages = Math.ceil(wanted / PAGE_BYTES);
    try {
      this.#memory.grow(pages);
    } catch (cause) {
      throw failure(cause); // the system has no more memory, below our own limit
    }
    this.#free.give(size, pages * PAGE_BYTES);
    const address = this.#free.take(bytes);
    if (address === undefined) throw failure();
    return address;
  }
}
