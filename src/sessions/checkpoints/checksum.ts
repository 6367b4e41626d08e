/** The checksum of everything that a session folder holds: CRC-32, as zlib computes it. */
import { crc32 } from 'node:zlib';

/** CRC-32 of `bytes` behind what `before` is the checksum of. */
export type Checksum = (bytes: Uint8Array, before: number) => number;

export const zlibChecksum: Checksum = (bytes, before) => crc32(bytes, before);
