/**
 * What a checkpoint holds beyond and besides the weights that are served, in bytes and names: for the lines printed at
 * load and for the memory plan. Every tensor is counted once.
 */
import type { Checkpoint } from '../weights/checkpoint.js';

export interface LoadReport {
  /** Bytes of all weights that a forward pass reads in full or by expert. */
  readonly residentBytes: number;
  /** Bytes of tables of which only single rows are read. */
  readonly gatheredBytes: number;
  /** Bytes of parts that are known but not served, by the part's name. */
  readonly unservedBytes: Readonly<Record<string, number>>;
  /** Names of tensors that nothing here knows, and their bytes. */
  readonly unknownTensors: readonly string[];
  readonly unknownBytes: number;
  /** Names of tensors that lie in a shard but not in the index. */
  readonly unmappedTensors: readonly string[];
  /** safetensors files of the folder that were not opened. */
  readonly unusedFiles: readonly string[];
}

export interface ReportOptions {
  /** Names that the weight map or its checks used. */
  readonly taken: ReadonlySet<string>;
  /** Names among them of tables of which only rows are read. */
  readonly tables?: ReadonlySet<string> | undefined;
  /** Parts that are known but may not be served, and which of them a tensor belongs to. */
  readonly parts: readonly string[];
  readonly partOf: (name: string) => string | undefined;
}

export function reportLoad(checkpoint: Checkpoint, { taken, tables, parts, partOf }: ReportOptions): LoadReport {
  const unservedBytes: Record<string, number> = Object.fromEntries(parts.map((part) => [part, 0]));
  const unknownTensors: string[] = [];
  let residentBytes = 0;
  let gatheredBytes = 0;
  let unknownBytes = 0;
  for (const name of checkpoint.names()) {
    const { byteLength } = checkpoint.get(name);
    const part = partOf(name);
    if (tables?.has(name) === true) gatheredBytes += byteLength;
    else if (taken.has(name)) residentBytes += byteLength;
    else if (part !== undefined) unservedBytes[part] = (unservedBytes[part] ?? 0) + byteLength;
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
