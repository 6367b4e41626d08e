/**
 * One safetensors file: 8 bytes of header length, a JSON header, then the data of all tensors.
 *
 * Invariants: only the header is read on opening; a file is refused unless its header is well formed and the tensors
 * cover the data section exactly, without overlap, hole or rest, each with shape × dtype bytes. So every TensorRef that
 * leaves this module can be read or mapped without another check. A failed open leaves no descriptor behind.
 */
import { basename } from 'node:path';
import { PlumblineError } from '../errors.js';
import { FLOAT_BYTES, toFloat32 } from './convert.js';
import { ReadOnlyFile, type ByteSource } from './file.js';
import {
  briefJson,
  isJsonArray,
  isJsonObject,
  parseStrictJson,
  quoteName,
  type JsonObject,
  type JsonValue,
} from './strict-json.js';
import { DTYPE_BITS, formatShape, isFloatDtype, type Dtype, type TensorRef } from './tensor.js';

/** The limit of the format's own reference implementation. */
const MAX_HEADER_BYTES = 100_000_000;
const LENGTH_BYTES = 8;

export interface SafetensorsHeader {
  readonly metadata: ReadonlyMap<string, string>;
  /** In the order of the header. */
  readonly tensors: ReadonlyMap<string, TensorRef>;
}

export class SafetensorsFile {
  private constructor(
    private readonly file: ReadOnlyFile,
    private readonly header: SafetensorsHeader,
  ) {}

  /**
   * Open a file and check its header.
   *
   * @throws checkpoint_not_found, checkpoint_unreadable, safetensors_invalid (naming the file and the tensor)
   */
  static open(path: string): SafetensorsFile {
    const file = ReadOnlyFile.open(path);
    try {
      return new SafetensorsFile(file, readHeader(file));
    } catch (error) {
      file.close();
      throw error;
    }
  }

  get path(): string {
    return this.file.path;
  }

  get byteLength(): number {
    return this.file.byteLength;
  }

  get metadata(): ReadonlyMap<string, string> {
    return this.header.metadata;
  }

  get tensors(): ReadonlyMap<string, TensorRef> {
    return this.header.tensors;
  }

  /** @throws tensor_missing */
  get(name: string): TensorRef {
    const tensor = this.header.tensors.get(name);
    if (tensor === undefined)
      throw new PlumblineError('tensor_missing', `${basename(this.path)} has no tensor ${quoteName(name)}`);
    return tensor;
  }

  /** The bytes of this file by offset in the file. */
  source(): ByteSource {
    return this.file;
  }

  /** A BF16, F16 or F32 tensor as a flat row-major array, converted exactly. Synchronous: for small tensors. */
  readFloat32(name: string): Float32Array {
    const tensor = this.get(name);
    if (!isFloatDtype(tensor.dtype)) throw wrongDtype(tensor, 'BF16, F16 or F32');
    const bytes = new Uint8Array(tensor.byteLength);
    this.file.read(tensor.byteOffset, bytes);
    const out = new Float32Array(tensor.byteLength / FLOAT_BYTES[tensor.dtype]);
    toFloat32(tensor.dtype, bytes, out);
    return out;
  }

  /** An I64 tensor as a flat row-major array. Synchronous: for small tensors. */
  readBigInt64(name: string): BigInt64Array {
    const tensor = this.get(name);
    if (tensor.dtype !== 'I64') throw wrongDtype(tensor, 'I64');
    const bytes = new Uint8Array(tensor.byteLength);
    this.file.read(tensor.byteOffset, bytes);
    return new BigInt64Array(bytes.buffer);
  }

  /** Stored bytes of a tensor, off the event loop. `into` has exactly its byte length. */
  async load(name: string, into: Uint8Array, signal?: AbortSignal): Promise<void> {
    const tensor = this.get(name);
    if (into.byteLength !== tensor.byteLength) {
      throw new PlumblineError(
        'internal_error',
        `${quoteName(name)} has ${tensor.byteLength} bytes, the buffer ${into.byteLength}`,
      );
    }
    await this.file.readAsync(tensor.byteOffset, into, signal);
  }

  close(): void {
    this.file.close();
  }
}

function wrongDtype(tensor: TensorRef, wanted: string): PlumblineError {
  return new PlumblineError('tensor_mismatch', `${quoteName(tensor.name)} is ${tensor.dtype}; ${wanted} was expected`);
}

function readHeader(file: ReadOnlyFile): SafetensorsHeader {
  const fail = failureOf(file.path);
  if (file.byteLength < LENGTH_BYTES)
    fail(`it has ${file.byteLength} bytes, fewer than the ${LENGTH_BYTES} of the header length`);
  const lengthBytes = new Uint8Array(LENGTH_BYTES);
  file.read(0, lengthBytes);
  const length = new DataView(lengthBytes.buffer).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES))
    fail(`its header claims ${length} bytes; the format allows ${MAX_HEADER_BYTES}`);
  const room = file.byteLength - LENGTH_BYTES;
  if (length > BigInt(room)) fail(`its header claims ${length} bytes but only ${room} follow`);
  const bytes = new Uint8Array(Number(length));
  file.read(LENGTH_BYTES, bytes);
  return parseSafetensorsHeader(bytes, file.path, file.byteLength);
}

type Fail = (why: string) => never;

function failureOf(path: string): Fail {
  return (why) => {
    throw new PlumblineError('safetensors_invalid', `${basename(path)} is not a usable safetensors file: ${why}`);
  };
}

/**
 * Check a header against the size of its file.
 *
 * @param header the JSON bytes, without the length
 * @param fileBytes size of the whole file
 */
export function parseSafetensorsHeader(header: Uint8Array, path: string, fileBytes: number): SafetensorsHeader {
  const fail = failureOf(path);
  if (header[0] !== 0x7b) fail("its header does not begin with '{'");
  const json = parseStrictJson(header, (why) => fail(`its header is not valid JSON: ${why}`));
  if (!isJsonObject(json)) return fail('its header is not an object');

  const dataStart = LENGTH_BYTES + header.byteLength;
  const dataBytes = fileBytes - dataStart;
  const tensors = new Map<string, TensorRef>();
  let metadata: ReadonlyMap<string, string> = new Map();
  for (const [name, entry] of Object.entries(json)) {
    if (name === '__metadata__') metadata = parseMetadata(entry, fail);
    else tensors.set(name, parseTensor(name, entry, path, dataStart, dataBytes, fail));
  }
  checkCoverage([...tensors.values()], dataStart, dataBytes, fail);
  return { metadata, tensors };
}

function parseMetadata(entry: JsonValue, fail: Fail): ReadonlyMap<string, string> {
  if (!isJsonObject(entry)) return fail('__metadata__ is not an object');
  const metadata = new Map<string, string>();
  for (const [key, value] of Object.entries(entry)) {
    if (typeof value !== 'string') fail(`__metadata__ entry ${quoteName(key)} is not a string`);
    else metadata.set(key, value);
  }
  return metadata;
}

const TENSOR_KEYS = ['dtype', 'shape', 'data_offsets'];

function parseTensor(
  name: string,
  entry: JsonValue,
  path: string,
  dataStart: number,
  dataBytes: number,
  failFile: Fail,
): TensorRef {
  const fail: Fail = (why) => failFile(`tensor ${quoteName(name)} ${why}`);
  if (!isJsonObject(entry)) return fail('is not described by an object');
  for (const key of Object.keys(entry)) if (!TENSOR_KEYS.includes(key)) fail(`has an unknown field ${quoteName(key)}`);
  const dtype = parseDtype(entry, fail);
  const shape = parseShape(entry, fail);
  const [begin, end] = parseOffsets(entry, fail);
  if (begin > end) fail(`begins at byte ${begin} of the data and ends before that, at ${end}`);
  if (end > dataBytes) fail(`ends at byte ${end} of the data, of which the file has ${dataBytes} (is the file cut?)`);
  const bits = elementCount(shape, fail) * DTYPE_BITS[dtype];
  if (!Number.isSafeInteger(bits)) fail(`of shape ${formatShape(shape)} is larger than any file`);
  if (bits % 8 !== 0) fail(`of ${dtype} ${formatShape(shape)} does not fill whole bytes`);
  if (bits / 8 !== end - begin) {
    fail(
      `of ${dtype} ${formatShape(shape)} needs ${bits / 8} bytes but its offsets [${begin}, ${end}] hold ${end - begin}`,
    );
  }
  return { name, file: path, dtype, shape, byteOffset: dataStart + begin, byteLength: end - begin };
}

function parseDtype(entry: JsonObject, fail: Fail): Dtype {
  const { dtype } = entry;
  if (typeof dtype !== 'string') return fail('has no dtype');
  if (!Object.hasOwn(DTYPE_BITS, dtype)) fail(`has the unknown dtype ${quoteName(dtype)}`);
  return dtype as Dtype;
}

function parseShape(entry: JsonObject, fail: Fail): number[] {
  const { shape } = entry;
  if (!isJsonArray(shape)) return fail('has no shape');
  return shape.map((size) => (isSize(size) ? size : fail(`has a shape entry that is no size: ${briefJson(size)}`)));
}

function parseOffsets(entry: JsonObject, fail: Fail): [number, number] {
  const offsets = entry['data_offsets'];
  if (!isJsonArray(offsets) || offsets.length !== 2) return fail('has no pair of data_offsets');
  const [begin, end] = offsets;
  if (!isSize(begin) || !isSize(end)) return fail(`has data_offsets that are no offsets: ${briefJson(offsets)}`);
  return [begin, end];
}

function isSize(value: JsonValue | undefined): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && !Object.is(value, -0);
}

function elementCount(shape: readonly number[], fail: Fail): number {
  let count = 1;
  for (const size of shape) {
    count *= size;
    if (!Number.isSafeInteger(count)) fail(`of shape ${formatShape(shape)} has more elements than can be counted`);
  }
  return count;
}

/** The data section is covered from its first to its last byte, each byte by one tensor. */
function checkCoverage(tensors: TensorRef[], dataStart: number, dataBytes: number, fail: Fail): void {
  tensors.sort((a, b) => a.byteOffset - b.byteOffset || a.byteLength - b.byteLength);
  let covered = 0;
  let previous = '';
  for (const tensor of tensors) {
    const begin = tensor.byteOffset - dataStart;
    if (begin < covered)
      fail(
        `tensor ${quoteName(tensor.name)} overlaps ${quoteName(previous)}: it begins at byte ${begin}, before ${covered}`,
      );
    if (begin > covered) fail(`${begin - covered} bytes before tensor ${quoteName(tensor.name)} belong to no tensor`);
    covered = begin + tensor.byteLength;
    previous = tensor.name;
  }
  if (covered !== dataBytes) fail(`${dataBytes - covered} bytes after the last tensor belong to no tensor`);
}
