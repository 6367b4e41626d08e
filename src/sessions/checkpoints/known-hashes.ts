/**
 * Hashes of weight files that the folder remembers by what the system says of the files, so that they are read once.
 *
 * Invariant: what does not hold under its checksum is as good as nothing; a folder that cannot be written remembers nothing.
 */
import { join } from 'node:path';
import { z } from 'zod';
import type { Checksum } from './checksum.js';
import { encodeFrame, readFrame } from './frame.js';
import type { SessionFolder } from './session-folder.js';

const MAGIC = 'PLUMHASH';
const NAME = 'weight-hashes';
const headerSchema = z.strictObject({ hashes: z.record(z.string().max(256), z.string().max(128)) });

export function readKnownHashes({ files, path }: SessionFolder, checksum: Checksum): ReadonlyMap<string, string> {
  try {
    const file = files.open(join(path, NAME), 'read');
    try {
      const frame = readFrame(file, MAGIC, checksum);
      const { data } = headerSchema.safeParse(frame.kind === 'frame' ? frame.header : undefined);
      return new Map(Object.entries(data?.hashes ?? {}));
    } finally {
      file.close();
    }
  } catch {
    return new Map(); // missing, or not to be read: the files are
  }
}

/** Whether it could be written. */
export async function writeKnownHashes(
  { files, path, staging }: SessionFolder,
  hashes: ReadonlyMap<string, string>,
  checksum: Checksum,
): Promise<boolean> {
  const staged = join(staging, NAME);
  try {
    await files.remove(staged).catch(() => undefined);
    const file = files.open(staged, 'create');
    try {
      await file.writeAll([encodeFrame(MAGIC, { hashes: Object.fromEntries(hashes) }, checksum)], 0);
      await file.sync();
    } finally {
      file.close();
    }
    files.rename(staged, join(path, NAME));
    return true;
  } catch {
    return false;
  }
}
