/**
 * Writes safetensors files, right ones and wrong ones: the header is a plain value that a test may bend before it is
 * encoded. Shares no code with the reader that it tests.
 */
import { Buffer } from 'node:buffer';

export interface TensorData {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export interface HeaderEntry {
  dtype: unknown;
  shape: unknown;
  data_offsets: unknown;
}

export type Header = Record<string, HeaderEntry | Record<string, unknown>>;

/** Header and data of tensors laid out one after another. */
export function layOut(tensors: readonly TensorData[]): { header: Header; data: Buffer } {
  const header: Header = {};
  let at = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    header[name] = { dtype, shape: [...shape], data_offsets: [at, at + bytes.byteLength] };
    at += bytes.byteLength;
  }
  return { header, data: Buffer.concat(tensors.map(({ bytes }) => bytes)) };
}

/** A file of a header (as a value, or as exact text) and data; `length` overrides what the first 8 bytes claim. */
export function assemble(header: Header | string | Buffer, data: Uint8Array, length?: bigint): Buffer {
  const bytes = Buffer.isBuffer(header)
    ? header
    : Buffer.from(typeof header === 'string' ? header : padded(JSON.stringify(header)), 'utf8');
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(length ?? BigInt(bytes.byteLength));
  return Buffer.concat([prefix, bytes, data]);
}

export function encodeSafetensors(tensors: readonly TensorData[], metadata?: Record<string, string>): Buffer {
  const { header, data } = layOut(tensors);
  return assemble(metadata === undefined ? header : { __metadata__: metadata, ...header }, data);
}

/** Writers pad the header with spaces to a multiple of 8. */
function padded(json: string): string {
  return json + ' '.repeat((8 - (Buffer.byteLength(json) % 8)) % 8);
}

/** bfloat16, float16 or float32 bytes of values, rounded to nearest even. */
export function floatBytes(dtype: 'BF16' | 'F16' | 'F32', values: readonly number[] | Float32Array): Uint8Array {
  const floats = Float32Array.from(values);
  if (dtype === 'F32') return new Uint8Array(floats.buffer);
  const halves = Uint16Array.from(floats, dtype === 'BF16' ? toBf16 : toF16);
  return new Uint8Array(halves.buffer);
}

export function int64Bytes(values: readonly (bigint | number)[]): Uint8Array {
  return new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
}

const scratch = new DataView(new ArrayBuffer(4));

function toBf16(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  return Number.isNaN(value) ? 0x7fc0 : ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** By the definition: the grid below 2^-14 is 2^-24, above it 11 significant bits. */
function toF16(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  if (Number.isNaN(value)) return 0x7e00;
  const size = Math.abs(value);
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(Math.floor(Math.log2(Math.max(size, 2 ** -24))), -14);
  const steps = roundHalfEven(size / 2 ** (exponent - 10));
  return sign | ((exponent + 14) * 1024 + steps);
}

function roundHalfEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}
