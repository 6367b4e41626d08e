/**
 * The weight table of a model: every tensor that a plan may name, by index. All plans of a model share one table, so an
 * index means the same tensor in each of them.
 *
 * Invariants: entries are only appended; `addresses` and `dtypes` are frozen at the first plan; vectors that the binder
 * derives (norm gains, convolution taps, rotary tables) live in one block that the table owns.
 */
import { PlumblineError } from '../../errors.js';
import type { Address, Backend, MemoryBlock } from '../backends/backend.js';
import { WEIGHT_DTYPES, type WeightDtype } from './ops.js';

interface Entry {
  readonly name: string;
  readonly dtype: WeightDtype;
  address: Address;
}

const ALIGNMENT = 64;

export class WeightTable {
  readonly #entries: Entry[] = [];
  readonly #derived: { readonly entry: Entry; readonly bytes: Uint8Array }[] = [];
  #block: MemoryBlock | undefined;
  #frozen: { readonly addresses: Float64Array; readonly dtypes: Int32Array } | undefined;

  /** A tensor that already lies in backend memory. Returns its index. */
  add(name: string, address: Address, dtype: WeightDtype): number {
    return this.#append({ name, address, dtype });
  }

  /** A float32 vector or matrix that the table keeps itself, in backend memory from `commit` on. */
  addFloat32(name: string, values: Float32Array): number {
    const entry: Entry = { name, address: 0, dtype: 'F32' };
    this.#derived.push({ entry, bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) });
    return this.#append(entry);
  }

  /** A table of 16-bit floats (sigmoid tables), kept like `addFloat32`. */
  addBf16Bits(name: string, bits: Uint16Array): number {
    const entry: Entry = { name, address: 0, dtype: 'BF16' };
    this.#derived.push({ entry, bytes: new Uint8Array(bits.buffer, bits.byteOffset, bits.byteLength) });
    return this.#append(entry);
  }

  /** Copies the derived vectors into backend memory and closes the table. Throws out_of_memory. */
  commit(backend: Backend): void {
    const offsets: number[] = [];
    let size = 0;
    for (const { bytes } of this.#derived) {
      offsets.push(size);
      size += Math.ceil(bytes.length / ALIGNMENT) * ALIGNMENT;
    }
    const block = backend.allocate(Math.max(size, ALIGNMENT), 'norm gains, convolution taps and tables');
    this.#derived.forEach(({ entry, bytes }, index) => {
      block.bytes.set(bytes, offsets[index]);
      entry.address = block.address + offsets[index]!;
    });
    this.#derived.length = 0;
    this.#block = block;
    this.#frozen = {
      addresses: Float64Array.from(this.#entries, (entry) => entry.address),
      dtypes: Int32Array.from(this.#entries, (entry) => WEIGHT_DTYPES.indexOf(entry.dtype)),
    };
  }

  /** Addresses and dtype codes by index. Throws plan_invalid before `commit`. */
  frozen(): { readonly addresses: Float64Array; readonly dtypes: Int32Array } {
    if (!this.#frozen)
      throw new PlumblineError('plan_invalid', 'a plan was built before its weight table was committed');
    return this.#frozen;
  }

  name(index: number): string {
    return this.#entries[index]?.name ?? `weight ${index}`;
  }

  free(): void {
    this.#block?.free();
    this.#block = undefined;
  }

  #append(entry: Entry): number {
    if (this.#frozen) throw new PlumblineError('plan_invalid', `weight ${entry.name} was added to a committed table`);
    return this.#entries.push(entry) - 1;
  }
}
