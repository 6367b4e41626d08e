/**
 * Blocks and mappings of the cpu backend as values with a lifetime.
 *
 * Invariants: `bytes` is the memory itself, seen by C and JavaScript alike; after `free` it has length 0 (its buffer is
 * detached), so a stale view cannot read or write memory that is gone; freeing twice, or after the backend has closed, does
 * nothing. Memory that a loaded plan or a running one uses is given back when the last of them is done.
 */
import { PlumblineError } from '../../../errors.js';
import type { MappedFile, MemoryBlock } from '../backend.js';
import type { NativeAddon, NativeBackend } from './addon.js';

/** Where blocks come from: an open backend. */
export interface MemorySource {
  readonly addon: NativeAddon;
  /** Undefined once the backend has closed. */
  readonly native: NativeBackend | undefined;
}

/** The most that one typed array can show; a block is one Uint8Array. */
const LONGEST = 2 ** 32 - 1;

class CpuBlock implements MemoryBlock {
  readonly address: number;
  readonly bytes: Uint8Array;
  readonly #source: MemorySource;
  #freed = false;

  constructor(source: MemorySource, address: number, buffer: ArrayBuffer) {
    this.#source = source;
    this.address = address;
    this.bytes = new Uint8Array(buffer);
  }

  free(): void {
    const { addon, native } = this.#source;
    if (this.#freed || native === undefined) return;
    this.#freed = true;
    addon.release(native, this.address, this.bytes.buffer as ArrayBuffer);
  }
}

/** Zeroed memory, 64-byte aligned. Throws out_of_memory with the figures. */
export function allocateBlock(
  source: MemorySource,
  native: NativeBackend,
  byteLength: number,
  purpose: string,
): MemoryBlock {
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw new PlumblineError('internal_error', `${byteLength} bytes for ${purpose} is no size`);
  }
  const found = byteLength <= LONGEST ? source.addon.allocate(native, byteLength) : null;
  if (found === null) {
    const limit = byteLength > LONGEST ? `, more than the ${LONGEST} of one block` : '';
    throw new PlumblineError('out_of_memory', `no ${byteLength} bytes for ${purpose}${limit}`);
  }
  return new CpuBlock(source, found.address, found.buffer);
}

/**
 * Maps a whole file read-only. Pages are read when they are first touched; a file that is cut short while it is mapped ends
 * the process when a missing page is read, as with every mapping. Throws checkpoint_unreadable with the system's reason.
 */
export function mapWholeFile(source: MemorySource, native: NativeBackend, path: string): MappedFile {
  const found = source.addon.mapFile(native, path);
  if (typeof found === 'string')
    throw new PlumblineError('checkpoint_unreadable', `${path} cannot be mapped: ${found}`);
  const { address, byteLength } = found;
  let open = true;
  const close = (): void => {
    if (!open || source.native === undefined) return;
    open = false;
    source.addon.release(source.native, address);
  };
  return { address, byteLength, close };
}
