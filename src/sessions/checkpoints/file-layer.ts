/**
 * Every touch of a session folder, behind one interface: what is written, when it is on the disk, and under which name it
 * can be found. Whoever wants to see a step fail, or the process end there, puts another layer in its place.
 *
 * Invariants: only regular files are opened, and they are made for their owner alone; reads are exact or an error, writes
 * are whole or an error; `rename` is one step of the file system and happens before it returns, so that a comparison and a
 * rename in one synchronous block cannot be parted. Names that were given are durable only after `syncFolder`.
 *
 * What fails throws the system's own error (`code` ENOSPC, EROFS, …), or session_file_invalid for a file that ends early.
 */
import * as fs from 'node:fs';
import { join } from 'node:path';
import { PlumblineError } from '../../errors.js';
import type { Checksum } from './checksum.js';

export interface FileEntry {
  readonly name: string;
  readonly bytes: number;
}

/** One open file. Views given in may lie in any memory; they are used until the promise settles. */
export interface OpenFile {
  /** Bytes when it was opened. */
  readonly byteLength: number;
  /** Fills `into` from byte `at`, at once; for headers. */
  read(into: Uint8Array, at: number): void;
  /** Fills the views one after the other from byte `at`, off the event loop. */
  readAll(into: readonly Uint8Array[], at: number): Promise<void>;
  /**
   * The same, and the CRC-32 of each view, that of the first behind `before`; where the machine can, both at once, while the
   * bytes are still in the cache of the core that read them.
   */
  readSummed(into: readonly Uint8Array[], at: number, checksum: Checksum, before: number): Promise<number[]>;
  /** Writes the views one after the other from byte `at`, off the event loop. */
  writeAll(from: readonly Uint8Array[], at: number): Promise<void>;
  /** Resolves when the bytes are on the disk. */
  sync(): Promise<void>;
  close(): void;
}

export interface FileLayer {
  /** Makes the folder and those above it, if they are missing. */
  makeFolder(path: string): void;
  /** The regular files of a folder, by name; none where the folder is missing. */
  list(path: string): readonly FileEntry[];
  /** All names in a folder, of files and of anything else; none where the folder is missing. */
  names(path: string): readonly string[];
  /** `create` makes a new file and fails when the name is taken. */
  open(path: string, mode: 'read' | 'create'): OpenFile;
  /** Gives `from` the name `to`, taking the place of a file of that name. */
  rename(from: string, to: string): void;
  /** Gives a file a second name; fails with EEXIST when that name is taken. */
  link(from: string, to: string): void;
  /** Takes a name away, off the event loop (a large file takes its time); a name that is not there is no failure. */
  remove(path: string): Promise<void>;
  /** The same at once; for small files. */
  removeNow(path: string): void;
  /** Resolves when the names of a folder are on the disk. */
  syncFolder(path: string): Promise<void>;
  /** What may still be written to the disk of a folder, in bytes. */
  freeBytes(path: string): number;
  /** What tells one file from every other that had its name; undefined when there is none. */
  identity(path: string): string | undefined;
}

/** Views of one call: the system takes 1024, and a call should end soon. */
const MOST_VIEWS = 512;

class NodeFile implements OpenFile {
  readonly byteLength: number;
  readonly #fd: number;
  readonly #reader: SummedReader | undefined;
  #open = true;

  constructor(fd: number, reader: SummedReader | undefined) {
    this.#fd = fd;
    this.#reader = reader;
    this.byteLength = fs.fstatSync(fd).size;
  }

  read(into: Uint8Array, at: number): void {
    for (let done = 0; done < into.byteLength;) {
      const got = fs.readSync(this.#fd, into, done, into.byteLength - done, at + done);
      if (got === 0) throw endedEarly();
      done += got;
    }
  }

  async readAll(into: readonly Uint8Array[], at: number): Promise<void> {
    await this.#each(into, at, (views, position) => {
      return new Promise((resolve, reject) => {
        fs.readv(this.#fd, views, position, (error, got) => {
          if (error) reject(error);
          else if (got === 0) reject(endedEarly());
          else resolve(got);
        });
      });
    });
  }

  async readSummed(into: readonly Uint8Array[], at: number, checksum: Checksum, before: number): Promise<number[]> {
    if (this.#reader !== undefined) {
      try {
        return await this.#reader(this.#fd, into, at, before);
      } catch (error) {
        throw systemCode(error) === 'session_file_invalid' ? endedEarly() : error;
      }
    }
    await this.readAll(into, at);
    return into.map((view, i) => checksum(view, i === 0 ? before : 0));
  }

  async writeAll(from: readonly Uint8Array[], at: number): Promise<void> {
    await this.#each(from, at, (views, position) => {
      return new Promise((resolve, reject) => {
        fs.writev(this.#fd, views, position, (error, written) => (error ? reject(error) : resolve(written)));
      });
    });
  }

  sync(): Promise<void> {
    return new Promise((resolve, reject) => fs.fsync(this.#fd, (error) => (error ? reject(error) : resolve())));
  }

  close(): void {
    if (this.#open) fs.closeSync(this.#fd);
    this.#open = false;
  }

  /** Repeats `act` over what is left of the views until nothing is. */
  async #each(
    views: readonly Uint8Array[],
    at: number,
    act: (views: readonly Uint8Array[], position: number) => Promise<number>,
  ): Promise<void> {
    let left = views.filter((view) => view.byteLength > 0);
    while (left.length > 0) {
      let done = await act(left.slice(0, MOST_VIEWS), at);
      at += done;
      let whole = 0;
      while (whole < left.length && done >= left[whole]!.byteLength) done -= left[whole++]!.byteLength;
      left = left.slice(whole);
      if (done > 0) left[0] = left[0]!.subarray(done);
    }
  }
}

/** Fills the views from `position` of an open file, off the event loop, and gives their CRC-32. */
export type SummedReader = (
  descriptor: number,
  views: readonly Uint8Array[],
  position: number,
  before: number,
) => Promise<number[]>;

/** The disk itself. @param reader reads with checksums where the machine has something faster than the plain way */
export const diskFilesWith = (reader: SummedReader | undefined): FileLayer => ({
  makeFolder(path) {
    fs.mkdirSync(path, { recursive: true, mode: 0o700 });
  },

  list(path) {
    const names = ignoringMissing(() => fs.readdirSync(path, { withFileTypes: true })) ?? [];
    return names
      .filter((entry) => entry.isFile())
      .flatMap(({ name }) => {
        const stat = fs.statSync(join(path, name), { throwIfNoEntry: false });
        return stat === undefined ? [] : [{ name, bytes: stat.size }];
      })
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  },

  names: (path) => ignoringMissing(() => fs.readdirSync(path)) ?? [],

  open(path, mode) {
    const { O_RDONLY, O_RDWR, O_CREAT, O_EXCL, O_NONBLOCK, O_NOFOLLOW } = fs.constants;
    // O_NONBLOCK: opening a FIFO that nobody writes to would hang; it means nothing for regular files.
    const flags = mode === 'read' ? O_RDONLY | O_NONBLOCK : O_RDWR | O_CREAT | O_EXCL;
    const fd = fs.openSync(path, flags | O_NOFOLLOW, 0o600);
    try {
      if (!fs.fstatSync(fd).isFile()) throw new PlumblineError('session_file_invalid', 'it is no regular file');
      return new NodeFile(fd, reader);
    } catch (error) {
      fs.closeSync(fd);
      throw error;
    }
  },

  rename: (from, to) => fs.renameSync(from, to),
  link: (from, to) => fs.linkSync(from, to),

  async remove(path) {
    await fs.promises.rm(path, { force: true });
  },

  removeNow: (path) => fs.rmSync(path, { force: true }),

  async syncFolder(path) {
    const folder = await fs.promises.open(path, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  },

  freeBytes(path) {
    const { bavail, bsize } = fs.statfsSync(path);
    return bavail * bsize;
  },

  identity(path) {
    const stat = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
    return stat && `${stat.dev}:${stat.ino}:${stat.birthtimeNs}`;
  },
});

export const diskFiles = diskFilesWith(undefined);

/** A whole small file. @throws session_file_invalid when it has more than `most` bytes */
export function readSmall(files: FileLayer, path: string, most: number): Uint8Array {
  const file = files.open(path, 'read');
  try {
    if (file.byteLength > most) {
      throw new PlumblineError('session_file_invalid', `a file of at most ${most} bytes has ${file.byteLength}`);
    }
    const bytes = new Uint8Array(file.byteLength);
    file.read(bytes, 0);
    return bytes;
  } finally {
    file.close();
  }
}

/**
 * Writes a small file so that after a crash at any point the old one or the new one is there, whole. Resolves when the new
 * one is on the disk under its name.
 *
 * @param staging a name that nothing else uses, on the same disk; a failure takes it away again
 */
export async function writeDurably(
  files: FileLayer,
  target: { readonly folder: string; readonly name: string; readonly staging: string },
  bytes: Uint8Array,
): Promise<void> {
  const file = files.open(target.staging, 'create');
  try {
    try {
      await file.writeAll([bytes], 0);
      await file.sync();
    } finally {
      file.close();
    }
    files.rename(target.staging, join(target.folder, target.name));
  } catch (error) {
    await files.remove(target.staging).catch(() => undefined); // the first failure is the one to tell
    throw error;
  }
  await files.syncFolder(target.folder);
}

/** `code` of a system error; undefined for any other. */
export function systemCode(error: unknown): string | undefined {
  const code: unknown = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

function ignoringMissing<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function endedEarly(): PlumblineError {
  return new PlumblineError('session_file_invalid', 'the file ended before its last byte');
}
