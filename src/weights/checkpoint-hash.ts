/**
 * A name for the contents of a checkpoint, for whatever must not be used with another one.
 *
 * Invariants: the same files give the same name wherever they lie and whatever they are called; names, dtypes and shapes of
 * all tensors are in it. Of tensors too large to be read at every start, only the beginning, the middle and the end are in
 * it: training, merging and quantising change every part of a tensor. What outlives the process goes by content-hash.ts.
 */
import { createHash } from 'node:crypto';
import type { Checkpoint } from './checkpoint.js';
import type { TensorRef } from './tensor.js';

/** Tensors up to so many bytes are read whole. */
const WHOLE = 64 * 1024;
const SAMPLE = 4 * 1024;

/** @param config text of config.json. @returns 64 hex digits. @throws checkpoint_unreadable */
export function checkpointHash(checkpoint: Checkpoint, config: string): string {
  const hash = createHash('sha256').update(config).update('\0');
  for (const name of [...checkpoint.names()].sort()) {
    const tensor = checkpoint.get(name);
    hash.update(`${JSON.stringify([name, tensor.dtype, tensor.shape])}\0`);
    for (const { from, length } of samples(tensor)) {
      const bytes = new Uint8Array(length);
      checkpoint.source(tensor).read(tensor.byteOffset + from, bytes);
      hash.update(bytes);
    }
  }
  return hash.digest('hex');
}

function samples({ byteLength }: TensorRef): { readonly from: number; readonly length: number }[] {
  if (byteLength <= WHOLE) return [{ from: 0, length: byteLength }];
  const middle = Math.floor((byteLength - SAMPLE) / 2);
  return [0, middle, byteLength - SAMPLE].map((from) => ({ from, length: SAMPLE }));
}
