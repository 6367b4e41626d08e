/**
 * Slabs of one size, carved out of larger backend blocks and used again after release.
 *
 * Invariants: a slab is counted by its holders and returns to the pool when the last one lets go; a returned slab is
 * zeroed before it is handed out again, unless the taker overwrites all of it, so that nothing of one sequence (a NaN least
 * of all) can reach another; the pool
 * never holds more than `limit` slabs.
 */
import { PlumblineError } from '../../errors.js';
import type { Address, Backend, MemoryBlock } from '../backends/backend.js';

const BLOCK_BYTES = 4 << 20;

export class Slab {
  readonly address: Address;
  readonly bytes: Uint8Array;
  readonly #pool: SlabPool;
  #holders = 1;

  constructor(pool: SlabPool, address: Address, bytes: Uint8Array) {
    this.#pool = pool;
    this.address = address;
    this.bytes = bytes;
  }

  get holders(): number {
    return this.#holders;
  }

  retain(): this {
    if (this.#holders === 0) throw new PlumblineError('internal_error', 'a released slab was retained');
    this.#holders++;
    return this;
  }

  release(): void {
    if (this.#holders === 0) throw new PlumblineError('internal_error', 'a slab was released twice');
    if (--this.#holders === 0) this.#pool.giveBack(this.address, this.bytes);
  }
}

export class SlabPool {
  readonly #backend: Backend;
  readonly #purpose: string;
  readonly #slabBytes: number;
  readonly #limit: number;
  readonly #blocks: MemoryBlock[] = [];
  readonly #free: { readonly address: Address; readonly bytes: Uint8Array; dirty: boolean }[] = [];
  #count = 0;
  #used = 0;

  constructor(backend: Backend, purpose: string, slabBytes: number, limit: number) {
    this.#backend = backend;
    this.#purpose = purpose;
    this.#slabBytes = Math.max(slabBytes, 64);
    this.#limit = limit;
  }

  /** A slab with one holder; `any` skips the zeroing, for callers that write all of it. Throws out_of_memory at the limit. */
  take(contents: 'zeroed' | 'any'): Slab {
    if (this.#free.length === 0) this.#grow();
    const slab = this.#free.pop()!;
    if (slab.dirty && contents === 'zeroed') slab.bytes.fill(0);
    this.#used++;
    return new Slab(this, slab.address, slab.bytes);
  }

  giveBack(address: Address, bytes: Uint8Array): void {
    this.#used--;
    this.#free.push({ address, bytes, dirty: true });
  }

  /** Bytes taken from the backend, and those in use by slabs now. */
  usage(): { readonly allocated: number; readonly used: number } {
    return { allocated: this.#count * this.#slabBytes, used: this.#used * this.#slabBytes };
  }

  close(): void {
    for (const block of this.#blocks) block.free();
    this.#blocks.length = 0;
    this.#free.length = 0;
    this.#count = 0;
  }

  #grow(): void {
    const wanted = Math.max(1, Math.floor(BLOCK_BYTES / this.#slabBytes));
    const count = Math.min(wanted, this.#limit - this.#count);
    if (count < 1) {
      throw new PlumblineError(
        'out_of_memory',
        `${this.#purpose}: all ${this.#limit} slabs of ${this.#slabBytes} bytes are in use; wait for running requests, or ` +
          'start with more --parallel or --context',
      );
    }
    const block = this.#backend.allocate(count * this.#slabBytes, this.#purpose);
    this.#blocks.push(block);
    this.#count += count;
    for (let i = count - 1; i >= 0; i--) {
      const from = i * this.#slabBytes;
      this.#free.push({
        address: block.address + from,
        bytes: block.bytes.subarray(from, from + this.#slabBytes),
        dirty: false,
      });
    }
  }
}
