/**
 * How every file of a session folder begins: magic, format version, a header in JSON, and a checksum over all of that.
 *
 *     0   8  magic
 *     8   4  format version
 *    12   4  bytes of the header
 *    16   4  CRC-32 of bytes 0 … 15 and of the header
 *    20      the header, UTF-8
 *
 * Invariants: numbers are little-endian; nothing of a header is parsed before its checksum holds, so a frame that is whole
 * but of another version was written by another plumbline, and is no damage. All versions share this frame.
 */
import { PlumblineError } from '../../errors.js';
import type { Checksum } from './checksum.js';
import type { OpenFile } from './file-layer.js';

export const FORMAT_VERSION = 1;
const PREFIX_BYTES = 20;
const CHECKED_PREFIX_BYTES = 16;
/** A header has a few hundred bytes, and some tens for each segment that it refers to. */
const MOST_HEADER_BYTES = 16 * 1024 * 1024;
/** Headers are read with one read, and the sections that an index needs with them, when they are small. */
const FIRST_READ = 16 * 1024;

/** What is wrong with a file; nothing of it may be used. */
export type Unusable =
  | { readonly kind: 'damaged'; readonly why: string }
  /** Whole, but written by a plumbline with another format. */
  | { readonly kind: 'other-version'; readonly version: number };

export interface Frame {
  readonly kind: 'frame';
  /** Parsed JSON, not yet looked at. */
  readonly header: unknown;
  /** Where the header ends. */
  readonly end: number;
  readonly checksum: number;
  /** The first bytes of the file, at least `end` of them. */
  readonly head: Uint8Array;
}

export const damaged = (why: string): Unusable => ({ kind: 'damaged', why });

/** @param magic 8 ASCII characters */
export function encodeFrame(magic: string, header: object, checksum: Checksum, version = FORMAT_VERSION): Uint8Array {
  const json = Buffer.from(JSON.stringify(header));
  const bytes = new Uint8Array(PREFIX_BYTES + json.byteLength);
  const view = new DataView(bytes.buffer);
  bytes.set(Buffer.from(magic, 'latin1'));
  view.setUint32(8, version, true);
  view.setUint32(12, json.byteLength, true);
  bytes.set(json, PREFIX_BYTES);
  view.setUint32(16, checksum(json, checksum(bytes.subarray(0, CHECKED_PREFIX_BYTES), 0)), true);
  return bytes;
}

/** Reads and checks the frame of a file. Throws what reading throws. */
export function readFrame(file: OpenFile, magic: string, checksum: Checksum): Frame | Unusable {
  if (file.byteLength < PREFIX_BYTES) return damaged(`it has ${file.byteLength} bytes, fewer than any such file`);
  let head: Uint8Array = new Uint8Array(Math.min(file.byteLength, FIRST_READ));
  file.read(head, 0);
  if (Buffer.from(head.buffer, 0, 8).toString('latin1') !== magic) return damaged('it does not begin with its magic');
  const view = new DataView(head.buffer);
  const [version, bytes, stored] = [8, 12, 16].map((at) => view.getUint32(at, true)) as [number, number, number];
  const end = PREFIX_BYTES + bytes;
  if (bytes > MOST_HEADER_BYTES || end > file.byteLength) return damaged(`its header has ${bytes} bytes`);
  if (end > head.byteLength) {
    head = new Uint8Array(end);
    file.read(head, 0);
  }
  const json = head.subarray(PREFIX_BYTES, end);
  if (checksum(json, checksum(head.subarray(0, CHECKED_PREFIX_BYTES), 0)) !== stored) {
    return damaged('the checksum of its header does not hold');
  }
  if (version !== FORMAT_VERSION) return { kind: 'other-version', version };
  try {
    const header: unknown = JSON.parse(Buffer.from(json).toString('utf8'));
    return { kind: 'frame', header, end, checksum: stored, head };
  } catch {
    return damaged('its header is no JSON');
  }
}

/** Bytes `at` … `at + length - 1` of a file whose first bytes are `head`. */
export function bytesAt(file: OpenFile, head: Uint8Array, at: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length); // a copy of its own, so that typed views of it are aligned
  if (at + length <= head.byteLength) bytes.set(head.subarray(at, at + length));
  else file.read(bytes, at);
  return bytes;
}

/** What a caller that cannot go on says of an unusable file. */
export function unusableError(what: string, unusable: Unusable): PlumblineError {
  const why =
    unusable.kind === 'damaged'
      ? unusable.why
      : `it is of format ${unusable.version}, and ${FORMAT_VERSION} is known here`;
  return new PlumblineError('session_file_invalid', `${what} cannot be used: ${why}`);
}
