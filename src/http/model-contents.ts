/**
 * Which model the states on a disk are of: the name of all bytes of its weight files.
 *
 * Invariants: nothing is read from the disk or written there before the name is known; files that the folder knows already
 * are not read again; small models are read before the server starts, large ones behind its back, at the cost of a turn of
 * the event loop for each MiB; files that changed since they were loaded leave the disk unused by this process.
 */
import { PlumblineError, toPlumblineError } from '../errors.js';
import type { Log } from '../observe/log.js';
import type { Checksum } from '../sessions/checkpoints/checksum.js';
import { readRecord, WEIGHT_HASHES, writeRecord } from '../sessions/checkpoints/records.js';
import type { SessionFolder } from '../sessions/checkpoints/session-folder.js';
import { contentHash, type WeightFile } from '../weights/content-hash.js';

/** Weights up to so many bytes are read in about a second. */
const READ_FIRST_BYTES = 1024 ** 3;

export class ModelContents {
  #hash: string | undefined;
  #obstacle: string | undefined = 'the weight files are being read, so that states are known to be theirs';
  readonly #stop = new AbortController();
  #reading: Promise<void> = Promise.resolve();

  /**
   * @param files absent: the model has none, and its own hash is all there is
   * @param readFirstBytes so many are read before this resolves
   */
  static async open(
    files: readonly WeightFile[] | undefined,
    folder: SessionFolder,
    checksum: Checksum,
    log: Log | undefined,
    readFirstBytes = READ_FIRST_BYTES,
  ): Promise<ModelContents> {
    const contents = new ModelContents();
    if (files === undefined) {
      contents.#hash = '';
      contents.#obstacle = undefined;
      return contents;
    }
    const known = new Map(Object.entries(readRecord(folder, WEIGHT_HASHES, checksum)?.hashes ?? {}));
    contents.#reading = contents.#read(files, known, folder, checksum, log);
    const unread = files.reduce((sum, { identity, byteLength }) => sum + (known.has(identity) ? 0 : byteLength), 0);
    if (unread <= readFirstBytes) await contents.#reading;
    return contents;
  }

  /** Why no state may go to the disk or come from it. */
  get obstacle(): string | undefined {
    return this.#obstacle;
  }

  /** The hash of a model's states. @param own what the model says of itself */
  modelHash(own: string): string {
    return this.#hash === undefined ? `unknown ${own}` : this.#hash === '' ? own : `${own}+${this.#hash}`;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#reading;
  }

  async #read(
    files: readonly WeightFile[],
    known: ReadonlyMap<string, string>,
    folder: SessionFolder,
    checksum: Checksum,
    log: Log | undefined,
  ): Promise<void> {
    const started = performance.now();
    try {
      const found = await contentHash(files, known, this.#stop.signal);
      if (found.bytesRead > 0) {
        const ms = Math.round(performance.now() - started);
        log?.info({ bytes: found.bytesRead, ms }, 'the weight files were read for their hash');
        await writeRecord(folder, WEIGHT_HASHES, { hashes: Object.fromEntries(found.known) }, checksum);
      }
      this.#hash = found.hash;
      this.#obstacle = undefined;
    } catch (thrown) {
      if (thrown instanceof PlumblineError && thrown.code === 'request_cancelled') return;
      this.#obstacle = toPlumblineError(thrown).message;
      log?.error({ err: thrown }, 'no session is kept on disk by this process');
    }
  }
}
