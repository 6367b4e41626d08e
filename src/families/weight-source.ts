/**
 * Weights in a backend's memory: large models are mapped from their files where the backend can map; all else is read
 * into blocks.
 *
 * A small model is read although it could be mapped: blocks lie in huge pages where the system has them, files in small
 * ones, and a forward that takes less than a millisecond spends a quarter of it on looking up pages.
 *
 * Invariants: each file is mapped once; each tensor is read once; tensors that are not asked for (the n-gram table, draft
 * heads, vision towers) never enter memory; `free` gives everything back.
 */
import { PlumblineError } from '../errors.js';
import type { Address, Backend, MappedFile, MemoryBlock } from '../engine/backends/backend.js';
import type { Checkpoint } from '../weights/checkpoint.js';
import type { TensorRef } from '../weights/tensor.js';

export type LoadProgress = (progress: { readonly loadedBytes: number; readonly totalBytes: number }) => void;

/** Most bytes of weights that are read rather than mapped. */
const READ_MOST = 256 * 2 ** 20;

export class LoadedWeights {
  readonly #checkpoint: Checkpoint;
  readonly #files = new Map<string, MappedFile>();
  readonly #blocks = new Map<string, MemoryBlock>();

  private constructor(checkpoint: Checkpoint) {
    this.#checkpoint = checkpoint;
  }

  /** Brings `tensors` into the backend's memory. Throws out_of_memory, checkpoint_unreadable, request_cancelled. */
  static async load(
    backend: Backend,
    checkpoint: Checkpoint,
    tensors: readonly TensorRef[],
    progress?: LoadProgress,
    signal?: AbortSignal,
  ): Promise<LoadedWeights> {
    const weights = new LoadedWeights(checkpoint);
    const totalBytes = tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0);
    const mapFile = totalBytes > READ_MOST ? backend.mapFile : undefined;
    let loadedBytes = 0;
    try {
      for (const tensor of tensors) {
        if (mapFile) {
          if (!weights.#files.has(tensor.file)) weights.#files.set(tensor.file, mapFile(tensor.file));
        } else if (!weights.#blocks.has(tensor.name)) {
          const block = backend.allocate(Math.max(tensor.byteLength, 1), `tensor ${tensor.name}`);
          weights.#blocks.set(tensor.name, block);
          await checkpoint.load(tensor.name, block.bytes.subarray(0, tensor.byteLength), signal);
        }
        loadedBytes += tensor.byteLength;
        progress?.({ loadedBytes, totalBytes });
      }
    } catch (error) {
      weights.free();
      throw error;
    }
    return weights;
  }

  address(tensor: TensorRef): Address {
    const file = this.#files.get(tensor.file);
    if (file) return file.address + tensor.byteOffset;
    const block = this.#blocks.get(tensor.name);
    if (!block) throw new PlumblineError('internal_error', `tensor ${tensor.name} was not loaded`);
    return block.address;
  }

  float32(tensor: TensorRef): Float32Array {
    return this.#checkpoint.readFloat32(tensor.name);
  }

  free(): void {
    for (const file of this.#files.values()) file.close();
    for (const block of this.#blocks.values()) block.free();
    this.#files.clear();
    this.#blocks.clear();
  }
}
