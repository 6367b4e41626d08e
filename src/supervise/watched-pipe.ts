/**
 * A pipe from a command to a stream of ours, of which is known when something last came through.
 *
 * Invariants: bytes pass unchanged and in order, and no faster than they are taken; a stream of ours that is closed
 * closes the pipe, as the command would have seen it without us. It is a named pipe of the system, because the pipes of
 * node are sockets, which a command cannot open as /dev/stdout.
 */
import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { PlumblineError } from '../errors.js';

export class WatchedPipe {
  readonly #source: Socket;
  readonly #sink: Writable;
  #writeEnd: number | undefined;
  #lastAt = performance.now();
  /** Whether the reader of our stream has not taken the last bytes yet. */
  #blocked = false;

  /** @throws PlumblineError supervise_unavailable when this system makes no named pipes */
  constructor(sink: Writable) {
    const { readEnd, writeEnd } = openPipe();
    this.#writeEnd = writeEnd;
    this.#sink = sink;
    this.#source = new Socket({ fd: readEnd, readable: true, writable: false });
    this.#source.on('data', (chunk: Buffer) => this.#pass(chunk));
    // The reading of a pipe that is being closed is all that can fail.
    this.#source.on('error', () => undefined);
    sink.on('error', this.#onSinkError);
  }

  /** What the command is started with; closed here by `started`. */
  get writeEnd(): number {
    return this.#writeEnd ?? -1;
  }

  /** To be called when the command has its own copy of the end it writes to, or will never have. */
  started(): void {
    if (this.#writeEnd !== undefined) closeSync(this.#writeEnd);
    this.#writeEnd = undefined;
    this.#lastAt = performance.now();
  }

  /** Milliseconds since something came; 0 while it is our reader who keeps the command waiting. */
  idleMs(): number {
    return this.#blocked ? 0 : performance.now() - this.#lastAt;
  }

  /**
   * Waits for the last bytes of a command that has ended. A reader is waited for, unless `signal` is aborted; a pipe that
   * something still holds open in silence is closed after `patienceMs`.
   */
  async end(patienceMs: number, signal?: AbortSignal): Promise<void> {
    this.#lastAt = performance.now();
    const mayWait = (): boolean => this.#blocked && signal?.aborted !== true;
    while (!this.#source.closed && (mayWait() || performance.now() - this.#lastAt < patienceMs)) await sleep(5);
    this.#source.destroy();
  }

  #pass(chunk: Buffer): void {
    this.#lastAt = performance.now();
    if (this.#sink.write(chunk)) return;
    this.#blocked = true;
    this.#source.pause();
    this.#sink.once('drain', () => {
      this.#blocked = false;
      this.#lastAt = performance.now();
      this.#source.resume();
    });
  }

  readonly #onSinkError = (): void => {
    this.#blocked = false;
    this.#source.destroy();
  };
}

function openPipe(): { readEnd: number; writeEnd: number } {
  let folder: string | undefined;
  try {
    folder = mkdtempSync(join(tmpdir(), 'plumbline-pipe-'));
    const path = join(folder, 'pipe');
    execFileSync('mkfifo', ['-m', '600', path], { stdio: ['ignore', 'ignore', 'pipe'] });
    // The reader first and without waiting: an end that is opened for writing waits for one.
    const readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    return { readEnd, writeEnd: openSync(path, constants.O_WRONLY) };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.trim() : String(cause);
    throw new PlumblineError(
      'supervise_unavailable',
      `the idle limit needs a named pipe in ${tmpdir()}, which could not be made (${why}); leave out --idle-s`,
      { cause },
    );
  } finally {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  }
}
