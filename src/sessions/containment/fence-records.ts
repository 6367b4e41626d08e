/**
 * Fences on the disk: one small file for each session that ever failed, named after the hash of the session's id.
 *
 * Invariants: after a crash at any point the older or the newer record is there, whole; a record is believed only when its
 * checksum fits and its name is that of its session; records are written one after the other, in the order of their calls;
 * a record holds no text and no token of any prompt.
 */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { PlumblineError } from '../../errors.js';
import { readSmall, writeDurably, type FileLayer } from '../checkpoints/file-layer.js';

/** The first `tokens` ids of a prompt, by their hash: an inferred identity is found again by it. */
export interface PromptAlias {
  readonly tokens: number;
  /** SHA-256 of the ids as little-endian int32, in hex. */
  readonly hash: string;
}

export interface FenceRecord {
  readonly session: string;
  /** Everything of an epoch below this one is dead. */
  readonly epoch: number;
  /** Whether the next turn of the session restores nothing. */
  readonly cold: boolean;
  /** Unix time in milliseconds. */
  readonly at: number;
  /** The request that failed. */
  readonly requestId: string;
  readonly aliases: readonly PromptAlias[];
}

const FORMAT = 'plumbline-fence';
const VERSION = 1;
/** A record has some hundred bytes; what is larger is none. */
const MOST_BYTES = 64 * 1024;
const NAME = /^([0-9a-f]{64})\.json$/;

export function sessionHash(session: string): string {
  return createHash('sha256').update(session, 'utf8').digest('hex');
}

export function encodeFence(record: FenceRecord): Uint8Array {
  const body = JSON.stringify({ format: FORMAT, version: VERSION, ...record });
  return Buffer.from(`${JSON.stringify({ crc32: crc32(body), body })}\n`);
}

/** @throws session_file_invalid for anything that `encodeFence` did not write */
export function decodeFence(bytes: Uint8Array): FenceRecord {
  const { crc32: sum, body } = parsed(Buffer.from(bytes).toString('utf8'));
  if (typeof body !== 'string' || sum !== crc32(body)) throw invalid('its checksum does not fit');
  const { format, version, session, epoch, cold, at, requestId, aliases } = parsed(body);
  if (format !== FORMAT || version !== VERSION) throw invalid(`it is no fence record of version ${VERSION}`);
  if (
    typeof session !== 'string' ||
    !Number.isSafeInteger(epoch) ||
    typeof cold !== 'boolean' ||
    typeof at !== 'number' ||
    typeof requestId !== 'string' ||
    !Array.isArray(aliases) ||
    !aliases.every(isAlias)
  )
    throw invalid('a field of it is missing');
  return { session, epoch: epoch as number, cold, at, requestId, aliases };
}

/** What was found in a folder of fences. */
export interface LoadedFences {
  readonly records: readonly FenceRecord[];
  /** Hashes of sessions whose record is there and cannot be believed: nothing of theirs can be either. */
  readonly unreadable: readonly string[];
}

export class FenceFolder {
  readonly #files: FileLayer;
  readonly #folder: string;
  readonly #staging: string;
  #tail: Promise<void> = Promise.resolve();
  #count = 0;

  /** @param staging a folder of the same disk that is emptied when a process begins to work here */
  constructor(files: FileLayer, folder: string, staging: string) {
    this.#files = files;
    this.#folder = folder;
    this.#staging = staging;
    files.makeFolder(folder);
    files.makeFolder(staging);
  }

  /** @throws what listing the folder throws; a single bad record is told, not thrown */
  load(): LoadedFences {
    const records: FenceRecord[] = [];
    const unreadable: string[] = [];
    for (const { name } of this.#files.list(this.#folder)) {
      const hash = NAME.exec(name)?.[1];
      if (hash === undefined) continue;
      try {
        const record = decodeFence(readSmall(this.#files, this.#pathOf(hash), MOST_BYTES));
        if (sessionHash(record.session) !== hash) throw invalid('it lies under the name of another session');
        records.push(record);
      } catch {
        unreadable.push(hash);
      }
    }
    return { records, unreadable };
  }

  /**
   * Writes the record that `current` gives when its turn has come. Resolves when it is durable.
   * @throws what the disk throws; the older record is then still there
   */
  write(current: () => FenceRecord): Promise<void> {
    return this.#inTurn(async () => {
      const record = current();
      const name = `${sessionHash(record.session)}.json`;
      const staging = `${this.#staging}/fence-${process.pid}-${this.#count++}.json`;
      await writeDurably(this.#files, { folder: this.#folder, name, staging }, encodeFence(record));
    });
  }

  /** Takes a record away, if `still` holds when its turn has come. */
  remove(hash: string, still: () => boolean): Promise<void> {
    return this.#inTurn(async () => {
      if (still()) await this.#files.remove(this.#pathOf(hash));
    });
  }

  /** Resolves when nothing is being written. */
  async idle(): Promise<void> {
    await this.#tail;
  }

  #inTurn(act: () => Promise<void>): Promise<void> {
    const done = this.#tail.then(act);
    this.#tail = done.catch(() => undefined); // told to whoever waits for it; the next one goes on
    return done;
  }

  #pathOf(hash: string): string {
    return `${this.#folder}/${hash}.json`;
  }
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  } catch {
    // told below, as everything that is no object
  }
  throw invalid('it is no JSON object');
}

function isAlias(value: unknown): value is PromptAlias {
  const { tokens, hash } = (value ?? {}) as Record<string, unknown>;
  return Number.isSafeInteger(tokens) && typeof hash === 'string';
}

function invalid(why: string): PlumblineError {
  return new PlumblineError('session_file_invalid', `a fence record is not usable: ${why}`);
}
