/**
 * Files of a session folder that are being taken away. Rows of the tables go first, so what is here nobody can find any more.
 *
 * Invariant: a file that cannot be taken away is kept in mind for the next sweep; at the latest the next start takes it away.
 */
import type { Log } from '../../observe/log.js';
import type { FileLayer } from './file-layer.js';

export class Removals {
  readonly #files: FileLayer;
  readonly #onFailure: (error: unknown) => void;
  readonly #running = new Set<Promise<void>>();
  /** Files that no table knows any more and that could not be taken away. */
  readonly #leftovers = new Set<string>();

  constructor(files: FileLayer, log: Log | undefined, onFailure: () => void) {
    this.#files = files;
    this.#onFailure = (error) => {
      onFailure();
      log?.warn({ err: error }, 'a file of the session folder could not be removed');
    };
  }

  /** Rejects with the system's error when the file stays. */
  remove(path: string): Promise<void> {
    const removal = this.#files.remove(path);
    const noted = removal
      .then(() => void this.#leftovers.delete(path))
      .catch((error: unknown) => {
        this.#leftovers.add(path);
        this.#onFailure(error);
      })
      .finally(() => this.#running.delete(noted));
    this.#running.add(noted);
    return removal;
  }

  /** Resolves when what was begun is over, whatever came of it. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#running);
  }

  /** Tries again what failed before. @returns how many files still stay */
  async sweep(): Promise<number> {
    await Promise.allSettled([...this.#leftovers].map((path) => this.remove(path)));
    await this.settled();
    return this.#leftovers.size;
  }
}
