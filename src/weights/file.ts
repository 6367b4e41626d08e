/**
 * A regular file opened for positioned reads, and the byte-source interface that everything which reads weights is
 * written against (a file here, a mapping or a buffer elsewhere).
 *
 * Invariants: only regular files are opened (symbolic links are followed, a FIFO or device never blocks us); the
 * descriptor lives until `close()`; reads are exact or an error, so a file that shrinks under us cannot give old bytes.
 */
import { closeSync, constants, fstatSync, openSync, read, readSync } from 'node:fs';
import { basename } from 'node:path';
import { PlumblineError } from '../errors.js';

/** Random access to bytes that do not change. */
export interface ByteSource {
  readonly byteLength: number;
  /** Bytes worth reading over to save one more call: a page for a file, 0 for memory. */
  readonly mergeGap: number;
  /** Fill `into` from `offset`. The whole range must lie inside the source. */
  read(offset: number, into: Uint8Array): void;
}

/** A ByteSource over memory, for example a mapped tensor. */
export function memorySource(bytes: Uint8Array): ByteSource {
  return {
    byteLength: bytes.byteLength,
    mergeGap: 0,
    read(offset, into) {
      if (offset < 0 || offset + into.byteLength > bytes.byteLength) {
        throw new PlumblineError(
          'internal_error',
          `read of bytes ${offset}+${into.byteLength} outside a source of ${bytes.byteLength}`,
        );
      }
      into.set(bytes.subarray(offset, offset + into.byteLength));
    },
  };
}

/** Most bytes of one asynchronous read: large enough for the disk, small enough to stop soon after an abort. */
const ASYNC_PIECE = 16 * 1024 * 1024;

export class ReadOnlyFile implements ByteSource {
  readonly mergeGap = 4096;
  private fd: number | undefined;

  private constructor(
    readonly path: string,
    readonly byteLength: number,
    fd: number,
  ) {
    this.fd = fd;
  }

  /**
   * Open a regular file.
   *
   * @throws checkpoint_not_found when there is none, checkpoint_unreadable for anything else (a directory, no
   * permission, a loop of links).
   */
  static open(path: string): ReadOnlyFile {
    let fd: number;
    try {
      // O_NONBLOCK: opening a FIFO that nobody writes to would otherwise hang; it means nothing for regular files.
      fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (cause) {
      throw systemFailure(path, cause);
    }
    try {
      const stat = fstatSync(fd);
      if (!stat.isFile()) {
        throw new PlumblineError(
          'checkpoint_unreadable',
          `${basename(path)} is not a regular file${stat.isDirectory() ? ' but a folder' : ''}`,
        );
      }
      return new ReadOnlyFile(path, stat.size, fd);
    } catch (cause) {
      closeSync(fd);
      throw systemFailure(path, cause);
    }
  }

  /** Synchronous; for headers, small tensors and table rows. */
  read(offset: number, into: Uint8Array): void {
    const fd = this.descriptor(offset, into.byteLength);
    for (let done = 0; done < into.byteLength;) {
      let got: number;
      try {
        got = readSync(fd, into, done, into.byteLength - done, offset + done);
      } catch (cause) {
        throw systemFailure(this.path, cause);
      }
      if (got === 0) throw this.shrunk(offset + done);
      done += got;
    }
  }

  /** The same off the event loop, in pieces; for tensors of any size. `signal` stops it between pieces. */
  async readAsync(offset: number, into: Uint8Array, signal?: AbortSignal): Promise<void> {
    for (let done = 0; done < into.byteLength;) {
      if (signal?.aborted === true)
        throw new PlumblineError('request_cancelled', `reading ${basename(this.path)} was cancelled`);
      const fd = this.descriptor(offset + done, into.byteLength - done);
      const length = Math.min(ASYNC_PIECE, into.byteLength - done);
      const got = await new Promise<number>((resolve, reject) => {
        read(fd, into, done, length, offset + done, (error, bytesRead) => {
          if (error === null) resolve(bytesRead);
          else reject(systemFailure(this.path, error));
        });
      });
      if (got === 0) throw this.shrunk(offset + done);
      done += got;
    }
  }

  close(): void {
    if (this.fd === undefined) return;
    closeSync(this.fd);
    this.fd = undefined;
  }

  private descriptor(offset: number, length: number): number {
    if (this.fd === undefined)
      throw new PlumblineError('internal_error', `${basename(this.path)} was read after it was closed`);
    if (offset < 0 || offset + length > this.byteLength) {
      throw new PlumblineError(
        'internal_error',
        `read of bytes ${offset}+${length} outside ${basename(this.path)} (${this.byteLength} bytes)`,
      );
    }
    return this.fd;
  }

  private shrunk(at: number): PlumblineError {
    return new PlumblineError(
      'checkpoint_unreadable',
      `${basename(this.path)} ended at byte ${at} though it had ${this.byteLength} when it was opened`,
    );
  }
}

/** Read a whole small file, such as config.json. @throws as `ReadOnlyFile.open`, or when it has more than `maxBytes`. */
export function readSmallFile(path: string, maxBytes: number): Uint8Array {
  const file = ReadOnlyFile.open(path);
  try {
    if (file.byteLength > maxBytes) {
      throw new PlumblineError(
        'checkpoint_unreadable',
        `${basename(path)} has ${file.byteLength} bytes, more than the ${maxBytes} that such a file may have`,
      );
    }
    const bytes = new Uint8Array(file.byteLength);
    file.read(0, bytes);
    return bytes;
  } finally {
    file.close();
  }
}

function systemFailure(path: string, cause: unknown): PlumblineError {
  if (cause instanceof PlumblineError) return cause;
  const code = (cause as NodeJS.ErrnoException).code;
  if (code === 'ENOENT')
    return new PlumblineError('checkpoint_not_found', `${basename(path)} does not exist`, { cause });
  return new PlumblineError('checkpoint_unreadable', `${basename(path)} cannot be read (${code ?? String(cause)})`, {
    cause,
  });
}
