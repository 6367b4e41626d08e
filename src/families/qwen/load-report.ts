/**
 * What a checkpoint holds beyond and besides the weights that are served, in bytes and names: for the lines printed at
 * load and for the memory plan. Every tensor is counted once.
 */
import type { Checkpoint } from '../../weights/checkpoint.js';
import { unservedPart, type UnservedPart } from './names.js';
import type { QwenWeights } from './weight-map.js';

export interface LoadReport {
  /** Bytes of all weights that a forward pass reads in full or by expert. */
  readonly residentBytes: number;
  /** Bytes of n-gram tables, of which only single rows are read. */
  readonly gatheredBytes: number;
  /** Bytes of parts that are known but not served. */
  readonly unservedBytes: Readonly<Record<UnservedPart, number>>;
  /** Names of tensors that nothing here knows, and their bytes. */
  readonly unknownTensors: readonly string[];
  readonly unknownBytes: number;
  /** Names of tensors that lie in a shard but not in the index. */
  readonly unmappedTensors: readonly string[];
  /** safetensors files of the folder that were not opened. */
  readonly unusedFiles: readonly string[];
}

/** @param taken names that the weight map or the constant checks used */
export function reportLoad(checkpoint: Checkpoint, taken: ReadonlySet<string>, weights: QwenWeights): LoadReport {
  const tables = new Set<string>();
  if (weights.family === 'qwen4_exp') {
    for (const { ple } of weights.layers) for (const shard of ple?.table.shards ?? []) tables.add(shard.name);
  }
  const unservedBytes: Record<UnservedPart, number> = { 'draft head': 0, 'vision tower': 0 };
  const unknownTensors: string[] = [];
  let residentBytes = 0;
  let gatheredBytes = 0;
  let unknownBytes = 0;
  for (const name of checkpoint.names()) {
    const { byteLength } = checkpoint.get(name);
    const part = unservedPart(name);
    if (tables.has(name)) gatheredBytes += byteLength;
    else if (taken.has(name)) residentBytes += byteLength;
    else if (part !== undefined) unservedBytes[part] += byteLength;
    else {
      unknownTensors.push(name);
      unknownBytes += byteLength;
    }
  }
  return {
    residentBytes,
    gatheredBytes,
    unservedBytes,
    unknownTensors,
    unknownBytes,
    unmappedTensors: checkpoint.unmappedTensors.map(({ name }) => name),
    unusedFiles: checkpoint.unusedFiles,
  };
}
