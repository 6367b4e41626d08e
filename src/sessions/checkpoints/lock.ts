/**
 * One writer for a session folder: a lock file that says which process has it.
 *
 * Invariants: the file appears under its name whole, by a link that fails when the name is taken; a lock whose process is
 * gone (by its id and its start, on the same host since the same boot) is taken over, one of another host never; a process
 * that takes over checks afterwards that the lock is still its own, so of two that do it at the same moment one gives way.
 * `held` asks the file system, so a writer whose lock was taken away by hand finds out before it publishes.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as elapsed } from 'node:timers/promises';
import { z } from 'zod';
import { PlumblineError } from '../../errors.js';
import { readSmall, systemCode, type FileLayer } from './file-layer.js';

export const LOCK_NAME = 'lock';
const MOST_LOCK_BYTES = 4096;
/** Long enough for another process that read the same stale lock to have done what it was about to do. */
const SETTLE_MS = 60;
const ATTEMPTS = 5;

const ownerSchema = z.object({
  pid: z.number().int().positive(),
  /** When the process began, as the system counts it; empty where the system does not say. */
  started: z.string(),
  host: z.string(),
  boot: z.string(),
  token: z.string(),
  /** Where the owner's HTTP API answers, when it has one. */
  address: z.string().optional(),
});

export type LockOwner = z.infer<typeof ownerSchema>;

/** Who holds the lock of a folder now; undefined when nobody does, or the file says nothing. */
export function readLockOwner(files: FileLayer, folder: string): LockOwner | undefined {
  try {
    const text = Buffer.from(readSmall(files, join(folder, LOCK_NAME), MOST_LOCK_BYTES)).toString('utf8');
    const parsed = ownerSchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the process that wrote a lock still runs, as far as this machine can tell. */
export function isAlive(owner: LockOwner): boolean {
  if (owner.host !== hostname()) return true; // who could know
  const boot = bootId();
  if (owner.boot !== '' && boot !== '' && owner.boot !== boot) return false;
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if (systemCode(error) === 'ESRCH') return false;
  }
  const { state, started } = processOf(owner.pid);
  if (state === 'Z') return false; // it has ended, and its parent has not asked yet
  return owner.started === '' || started === '' || owner.started === started;
}

export class FolderLock {
  readonly #files: FileLayer;
  readonly #path: string;
  readonly #owner: LockOwner;
  #identity: string | undefined;

  private constructor(files: FileLayer, path: string, owner: LockOwner) {
    this.#files = files;
    this.#path = path;
    this.#owner = owner;
    this.#identity = files.identity(path);
  }

  /** @throws session_store_locked, and what the file system throws */
  static async take(files: FileLayer, folder: string): Promise<FolderLock> {
    const path = join(folder, LOCK_NAME);
    const owner: LockOwner = {
      pid: process.pid,
      started: processOf(process.pid).started,
      host: hostname(),
      boot: bootId(),
      token: randomBytes(12).toString('hex'),
    };
    const own = `${path}.${owner.token}`;
    await writeOwner(files, own, owner);
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (linked(files, own, path)) {
          if (attempt > 0) await elapsed(SETTLE_MS);
          if (readLockOwner(files, folder)?.token === owner.token) return new FolderLock(files, path, owner);
          continue;
        }
        const found = readLockOwner(files, folder);
        if (found !== undefined && isAlive(found)) throw locked(found);
        clearStale(files, path, found?.token, `${path}.${owner.token}.stale`);
      }
    } finally {
      files.removeNow(own);
    }
    throw locked(readLockOwner(files, folder));
  }

  /** Whether the lock is still this one. */
  get held(): boolean {
    return this.#identity !== undefined && this.#files.identity(this.#path) === this.#identity;
  }

  /** Writes down where this process answers, for commands that want to ask it. */
  async tellAddress(address: string): Promise<void> {
    const own = `${this.#path}.${this.#owner.token}`;
    await writeOwner(this.#files, own, { ...this.#owner, address });
    if (!this.held) return this.#files.removeNow(own);
    this.#files.rename(own, this.#path);
    this.#identity = this.#files.identity(this.#path);
  }

  release(): void {
    if (this.held) this.#files.removeNow(this.#path);
    this.#identity = undefined;
  }
}

async function writeOwner(files: FileLayer, path: string, owner: LockOwner): Promise<void> {
  const file = files.open(path, 'create');
  try {
    await file.writeAll([Buffer.from(`${JSON.stringify(owner)}\n`)], 0);
  } catch (error) {
    files.removeNow(path);
    throw error;
  } finally {
    file.close();
  }
}

/** Whether the lock's name could be given to the own file. */
function linked(files: FileLayer, own: string, path: string): boolean {
  try {
    files.link(own, path);
    return true;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw error;
  }
}

/** Takes a dead process's lock away; if another process has meanwhile put its own there, that one is put back. */
function clearStale(files: FileLayer, path: string, token: string | undefined, aside: string): void {
  try {
    files.rename(path, aside);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return; // somebody else was faster
    throw error;
  }
  try {
    const text = Buffer.from(readSmall(files, aside, MOST_LOCK_BYTES)).toString('utf8');
    if (tokenOf(text) !== token) linked(files, aside, path);
  } finally {
    files.removeNow(aside);
  }
}

function tokenOf(text: string): string | undefined {
  try {
    const parsed = ownerSchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data.token : undefined;
  } catch {
    return undefined;
  }
}

function locked(owner: LockOwner | undefined): PlumblineError {
  const who =
    owner === undefined
      ? 'another process'
      : `process ${owner.pid} on ${owner.host}${owner.address === undefined ? '' : ` (${owner.address})`}`;
  return new PlumblineError(
    'session_store_locked',
    `the session folder is in use by ${who}; stop it or choose another folder` +
      (owner !== undefined && owner.host !== hostname()
        ? `, or remove its file "${LOCK_NAME}" if that host is gone`
        : ''),
  );
}

/**
 * State of a process and its start in ticks since boot (fields 3 and 22 of its stat line, counted behind the name in
 * brackets); empty where the system does not say.
 */
function processOf(pid: number): { readonly state: string; readonly started: string } {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', started: fields[19] ?? '' };
  } catch {
    return { state: '', started: '' };
  }
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return '';
  }
}
