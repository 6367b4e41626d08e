/**
 * A checkpoint folder as one namespace of tensors: `model.safetensors`, or the shards that
 * `model.safetensors.index.json` names, and on request further files beside them.
 *
 * Invariants: every name of the map is in the shard that the map names, and no tensor is served from anywhere else; shard
 * names are plain file names, so a map cannot lead out of the folder; what the folder holds beyond the map is reported,
 * never used. The descriptors stay open until `close()`, so all reads come from the files that were checked.
 */
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { PlumblineError } from '../errors.js';
import { readSmallFile, type ByteSource } from './file.js';
import { SafetensorsFile } from './safetensors.js';
import { isJsonObject, parseStrictJson, quoteName, type JsonObject } from './strict-json.js';
import type { TensorRef } from './tensor.js';

const SINGLE_FILE = 'model.safetensors';
const INDEX_FILE = 'model.safetensors.index.json';
/** An index of a million tensors has about 100 MB. */
const MAX_INDEX_BYTES = 256 * 1024 * 1024;

export interface CheckpointOptions {
  /** Names of further safetensors files of the folder whose tensors join the namespace. */
  readonly extraFiles?: readonly string[] | undefined;
}

export class Checkpoint {
  private readonly byPath: ReadonlyMap<string, SafetensorsFile>;

  /** Use `openCheckpoint`. */
  constructor(
    readonly dir: string,
    /** The open files, in the order in which they were first named. */
    readonly files: readonly SafetensorsFile[],
    private readonly tensors: ReadonlyMap<string, TensorRef>,
    /** Tensors that lie in a shard but that the index does not name: not served. */
    readonly unmappedTensors: readonly TensorRef[],
    /** safetensors files of the folder that belong to nothing above: not opened. */
    readonly unusedFiles: readonly string[],
  ) {
    this.byPath = new Map(files.map((file) => [file.path, file]));
  }

  names(): IterableIterator<string> {
    return this.tensors.keys();
  }

  has(name: string): boolean {
    return this.tensors.has(name);
  }

  find(name: string): TensorRef | undefined {
    return this.tensors.get(name);
  }

  /** @throws tensor_missing */
  get(name: string): TensorRef {
    const tensor = this.tensors.get(name);
    if (tensor === undefined)
      throw new PlumblineError('tensor_missing', `the checkpoint has no tensor ${quoteName(name)}`);
    return tensor;
  }

  /** A BF16, F16 or F32 tensor, flat and row-major, converted exactly. Synchronous: for small tensors. */
  readFloat32(name: string): Float32Array {
    return this.fileOf(this.get(name)).readFloat32(name);
  }

  /** An I64 tensor, flat and row-major. Synchronous: for small tensors. */
  readBigInt64(name: string): BigInt64Array {
    return this.fileOf(this.get(name)).readBigInt64(name);
  }

  /** Stored bytes of a tensor, off the event loop. `into` has exactly its byte length. */
  async load(name: string, into: Uint8Array, signal?: AbortSignal): Promise<void> {
    await this.fileOf(this.get(name)).load(name, into, signal);
  }

  /** The bytes of the file that holds a tensor, by offset in the file; valid until `close()`. */
  source(tensor: TensorRef): ByteSource {
    return this.fileOf(tensor).source();
  }

  close(): void {
    for (const file of this.files) file.close();
  }

  private fileOf(tensor: TensorRef): SafetensorsFile {
    const file = this.byPath.get(tensor.file);
    if (file === undefined)
      throw new PlumblineError('internal_error', `${quoteName(tensor.name)} is of another checkpoint`);
    return file;
  }
}

/**
 * Open a folder and check the headers of its files against each other.
 *
 * @throws checkpoint_not_found, checkpoint_unreadable, safetensors_invalid (naming the file and the tensor)
 */
export function openCheckpoint(dir: string, options: CheckpointOptions = {}): Checkpoint {
  const listing = listFolder(dir);
  const files = new Map<string, SafetensorsFile>();
  const open = (name: string): SafetensorsFile => {
    let file = files.get(name);
    if (file === undefined) {
      file = SafetensorsFile.open(join(dir, name));
      files.set(name, file);
    }
    return file;
  };
  try {
    const { tensors, unmapped } = listing.includes(INDEX_FILE) ? openIndexed(dir, open) : openSingle(dir, open);
    for (const name of options.extraFiles ?? []) addExtraFile(name, open, tensors);
    const unused = listing.filter((name) => name.endsWith('.safetensors') && !files.has(name));
    return new Checkpoint(dir, [...files.values()], tensors, unmapped, unused.sort());
  } catch (error) {
    for (const file of files.values()) file.close();
    throw error;
  }
}

interface Namespace {
  readonly tensors: Map<string, TensorRef>;
  readonly unmapped: TensorRef[];
}

type OpenFile = (name: string) => SafetensorsFile;

function listFolder(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw new PlumblineError('checkpoint_not_found', `there is no folder ${dir}`, { cause });
    if (code === 'ENOTDIR') throw new PlumblineError('checkpoint_not_found', `${dir} is not a folder`, { cause });
    throw new PlumblineError('checkpoint_unreadable', `${dir} cannot be read (${code ?? String(cause)})`, { cause });
  }
}

function openSingle(dir: string, open: OpenFile): Namespace {
  try {
    return { tensors: new Map(open(SINGLE_FILE).tensors), unmapped: [] };
  } catch (error) {
    if (!(error instanceof PlumblineError) || error.code !== 'checkpoint_not_found') throw error;
    throw new PlumblineError('checkpoint_not_found', `${dir} has neither ${SINGLE_FILE} nor ${INDEX_FILE}`, {
      cause: error,
    });
  }
}

function openIndexed(dir: string, open: OpenFile): Namespace {
  const map = readWeightMap(dir);
  const tensors = new Map<string, TensorRef>();
  for (const [name, shard] of map) {
    const tensor = open(shard).tensors.get(name);
    if (tensor === undefined)
      failIndex(`it places tensor ${quoteName(name)} in ${quoteName(shard)}, which does not hold it`);
    else tensors.set(name, tensor);
  }
  const unmapped: TensorRef[] = [];
  for (const shard of new Set(map.values())) {
    for (const [name, tensor] of open(shard).tensors) if (map.get(name) !== shard) unmapped.push(tensor);
  }
  return { tensors, unmapped };
}

function readWeightMap(dir: string): Map<string, string> {
  const json = parseStrictJson(readSmallFile(join(dir, INDEX_FILE), MAX_INDEX_BYTES), (why) =>
    failIndex(`it is not valid JSON: ${why}`),
  );
  if (!isJsonObject(json)) return failIndex('it is not an object');
  const weightMap = json['weight_map'];
  if (!isJsonObject(weightMap)) return failIndex('it has no weight_map object');
  return checkedMap(weightMap);
}

function checkedMap(weightMap: JsonObject): Map<string, string> {
  const map = new Map<string, string>();
  for (const [name, shard] of Object.entries(weightMap)) {
    if (typeof shard !== 'string') return failIndex(`it gives no file name for tensor ${quoteName(name)}`);
    if (!isPlainFileName(shard))
      return failIndex(
        `it places tensor ${quoteName(name)} in ${quoteName(shard)}, which is not a plain .safetensors name of this folder`,
      );
    map.set(name, shard);
  }
  if (map.size === 0) failIndex('its weight_map is empty');
  return map;
}

/** No separators, no drive, no dots that lead upwards: the name of a file in this folder on every system. */
function isPlainFileName(name: string): boolean {
  return /^[^/\\:\u0000-\u001f]+\.safetensors$/u.test(name) && basename(name) === name;
}

function addExtraFile(name: string, open: OpenFile, tensors: Map<string, TensorRef>): void {
  if (!isPlainFileName(name))
    throw new PlumblineError(
      'checkpoint_unreadable',
      `${quoteName(name)} is not a plain .safetensors name of the folder`,
    );
  for (const [key, tensor] of open(name).tensors) {
    const other = tensors.get(key);
    if (other !== undefined && other !== tensor) {
      throw new PlumblineError(
        'safetensors_invalid',
        `tensor ${quoteName(key)} is in both ${basename(other.file)} and ${name}`,
      );
    }
    tensors.set(key, tensor);
  }
}

function failIndex(why: string): never {
  throw new PlumblineError('safetensors_invalid', `${INDEX_FILE} is not usable: ${why}`);
}
