/**
 * Small things that a session folder remembers beside its checkpoints: one frame each, in a file of its own.
 *
 * Invariant: what does not hold under its checksum is as good as nothing; a folder that cannot be written remembers nothing.
 */
import { join } from 'node:path';
import { z } from 'zod';
import type { Checksum } from './checksum.js';
import { writeDurably } from './file-layer.js';
import { encodeFrame, readFrame } from './frame.js';
import type { SessionFolder } from './session-folder.js';

interface RecordKind<T extends object> {
  readonly name: string;
  /** 8 ASCII characters. */
  readonly magic: string;
  readonly schema: z.ZodType<T>;
}

/** Hashes of weight files by what the system says of the files, so that they are read once. */
export const WEIGHT_HASHES: RecordKind<{ hashes: Record<string, string> }> = {
  name: 'weight-hashes',
  magic: 'PLUMHASH',
  schema: z.strictObject({ hashes: z.record(z.string().max(256), z.string().max(128)) }),
};

/** Ids of checkpoints in the order of their last use, the longest unused first. */
export const USE_ORDER: RecordKind<{ ids: string[] }> = {
  name: 'last-used',
  magic: 'PLUMUSED',
  schema: z.strictObject({ ids: z.array(z.string().max(64)) }),
};

export function readRecord<T extends object>(
  { files, path }: SessionFolder,
  { name, magic, schema }: RecordKind<T>,
  checksum: Checksum,
): T | undefined {
  try {
    const file = files.open(join(path, name), 'read');
    try {
      const frame = readFrame(file, magic, checksum);
      return schema.safeParse(frame.kind === 'frame' ? frame.header : undefined).data;
    } finally {
      file.close();
    }
  } catch {
    return undefined; // missing, or not to be read
  }
}

/** Whether it could be written. One at a time for each kind. */
export async function writeRecord<T extends object>(
  { files, path, staging, lock }: SessionFolder,
  { name, magic }: RecordKind<T>,
  record: T,
  checksum: Checksum,
): Promise<boolean> {
  const staged = join(staging, name);
  try {
    if (!lock.held) return false;
    await writeDurably(files, { folder: path, name, staging: staged }, encodeFrame(magic, record, checksum));
    return true;
  } catch {
    return false;
  }
}
