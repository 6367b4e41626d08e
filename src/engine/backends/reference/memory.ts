/**
 * Memory with addresses for a backend that lives in JavaScript: every block gets a range of made-up addresses, and an
 * address is turned back into bytes by a search over the ranges.
 *
 * Invariants: ranges never overlap and are never given out twice, so a stale address is found out instead of read; bases
 * are 64-byte aligned; an access must lie within one block.
 */
import { PlumblineError } from '../../../errors.js';
import type { Address, MemoryBlock } from '../backend.js';

interface Range {
  readonly base: Address;
  readonly bytes: Uint8Array;
}

const ALIGNMENT = 64;
/** Left between blocks, so that an address just past one belongs to none. */
const GUARD = 4096;

export class ReferenceMemory {
  /** Ascending by base. */
  readonly #ranges: Range[] = [];
  #nextBase = GUARD;
  #allocated = 0;

  get allocated(): number {
    return this.#allocated;
  }

  /** Zeroed memory. Throws out_of_memory. */
  allocate(byteLength: number, purpose: string): MemoryBlock {
    const range: Range = { base: this.#nextBase, bytes: zeroed(byteLength, purpose) };
    this.#nextBase += Math.ceil(byteLength / ALIGNMENT) * ALIGNMENT + GUARD;
    this.#ranges.push(range);
    this.#allocated += byteLength;
    return { address: range.base, bytes: range.bytes, free: () => this.#free(range) };
  }

  /** The `byteLength` bytes at `address`. Throws backend_failed where they are not all in one block. */
  resolve(address: Address, byteLength: number): Uint8Array {
    const range = this.#rangeBelow(address);
    const offset = address - (range?.base ?? 0);
    if (!range || !Number.isInteger(offset) || offset + byteLength > range.bytes.length) {
      throw new PlumblineError('backend_failed', `${byteLength} bytes at address ${address} lie in no memory block`);
    }
    return range.bytes.subarray(offset, offset + byteLength);
  }

  /** The block with the greatest base that is not above `address`. */
  #rangeBelow(address: Address): Range | undefined {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ranges[middle]!.base <= address) low = middle + 1;
      else high = middle;
    }
    return this.#ranges[low - 1];
  }

  #free(range: Range): void {
    const index = this.#ranges.indexOf(range);
    if (index < 0) return;
    this.#ranges.splice(index, 1);
    this.#allocated -= range.bytes.length;
  }
}

function zeroed(byteLength: number, purpose: string): Uint8Array {
  try {
    return new Uint8Array(byteLength);
  } catch (cause) {
    throw new PlumblineError('out_of_memory', `no ${byteLength} bytes for ${purpose}`, { cause });
  }
}

/** `bytes` as float32; a copy where they are not aligned. */
export function asFloat32(bytes: Uint8Array): Float32Array {
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  return new Float32Array(buffer, byteOffset, byteLength >> 2);
}

/** `bytes` as 16-bit words; a copy where they are not aligned. */
export function asUint16(bytes: Uint8Array): Uint16Array {
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 2 === 0 ? bytes : bytes.slice();
  return new Uint16Array(buffer, byteOffset, byteLength >> 1);
}
