/**
 * A name for every byte of a checkpoint's weight files, for states that outlive the process: what was computed with other
 * bytes must never be taken for its own.
 *
 * Invariants: a file is known again by what the system says of it (device, inode, size, times of its bytes and of its entry)
 * without being read; a write to it, whatever it does to its times, changes that. A file that was written to only a moment
 * ago is not known again, because the next write could leave the same times. A file that is no longer the one that was
 * loaded gives no name.
 */
import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { PlumblineError } from '../errors.js';
import type { Checkpoint } from './checkpoint.js';

export interface WeightFile {
  readonly path: string;
  readonly byteLength: number;
  /** What the system says of it. */
  readonly identity: string;
  /** Milliseconds since 1970: the last change of its entry. */
  readonly changedAt: number;
}

/** Bytes between two turns of the event loop: less than two milliseconds of it. */
const PIECE = 1024 * 1024;
/** Times of files may be this coarse. */
const SETTLED_MS = 3000;

/** The files of a checkpoint as they are now: to be asked before the first weight is read. @throws checkpoint_unreadable */
export function weightFiles({ files }: Checkpoint): readonly WeightFile[] {
  return files.map(({ path }) => lookAt(path));
}

export interface ContentHash {
  /** 64 hex digits; the order and the names of the files are not in it. */
  readonly hash: string;
  /** By identity: what need not be read the next time. */
  readonly known: ReadonlyMap<string, string>;
  readonly bytesRead: number;
}

/**
 * @param known hashes of files by their identity
 * @throws checkpoint_unreadable also for a file that has changed since `files` was made; request_cancelled
 */
export async function contentHash(
  files: readonly WeightFile[],
  known: ReadonlyMap<string, string>,
  signal?: AbortSignal,
): Promise<ContentHash> {
  const hashes: string[] = [];
  const kept = new Map<string, string>();
  let bytesRead = 0;
  for (const file of files) {
    const begun = Date.now();
    let hash = known.get(file.identity);
    if (hash === undefined) {
      hash = await hashOf(file, signal);
      bytesRead += file.byteLength;
    }
    if (lookAt(file.path).identity !== file.identity) throw changed(file.path);
    if (begun - file.changedAt > SETTLED_MS) kept.set(file.identity, hash);
    hashes.push(hash);
  }
  return { hash: createHash('sha256').update(hashes.sort().join()).digest('hex'), known: kept, bytesRead };
}

async function hashOf({ path, byteLength }: WeightFile, signal: AbortSignal | undefined): Promise<string> {
  const hash = createHash('sha256');
  try {
    const file = await open(path, 'r');
    try {
      const piece = Buffer.allocUnsafe(PIECE);
      for (let at = 0; at < byteLength;) {
        if (signal?.aborted === true)
          throw new PlumblineError('request_cancelled', 'reading the weights was cancelled');
        const { bytesRead } = await file.read(piece, 0, PIECE, at);
        if (bytesRead === 0) throw changed(path);
        hash.update(piece.subarray(0, bytesRead));
        at += bytesRead;
      }
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw unreadable(path, cause);
  }
  return hash.digest('hex');
}

function lookAt(path: string): WeightFile {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    const identity = [dev, ino, size, mtimeNs, ctimeNs].join(':');
    return { path, byteLength: Number(size), identity, changedAt: Number(ctimeNs / 1_000_000n) };
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

const changed = (path: string): PlumblineError =>
  new PlumblineError('checkpoint_unreadable', `${basename(path)} has changed since it was loaded`);

function unreadable(path: string, cause: unknown): unknown {
  if (cause instanceof PlumblineError) return cause;
  return new PlumblineError('checkpoint_unreadable', `${basename(path)} could not be read`, { cause });
}
