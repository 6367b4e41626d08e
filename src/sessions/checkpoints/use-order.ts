/**
 * In which order the checkpoints of a folder were used, kept over restarts, so that what goes first when there is no room is
 * what was unused longest.
 *
 * Invariants: no clock decides anything: the order itself is written down; it is written off the path of requests, at most
 * once in a while and when the folder is closed, so a crash loses the latest uses and nothing else. What was stored after the
 * order was written counts as used later, in the order of its numbers.
 */
import type { CheckpointIndex } from './checkpoint-index.js';
import type { Checksum } from './checksum.js';
import { readRecord, USE_ORDER, writeRecord } from './records.js';
import type { SessionFolder } from './session-folder.js';

const EVERY_MS = 60_000;

export class UseOrder {
  readonly #folder: SessionFolder;
  readonly #index: CheckpointIndex;
  readonly #checksum: Checksum;
  #changed = false;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(folder: SessionFolder, index: CheckpointIndex, checksum: Checksum) {
    this.#folder = folder;
    this.#index = index;
    this.#checksum = checksum;
  }

  /** Brings the entries of a folder that was just read into the order that is written there. */
  restore(): void {
    const { ids = [] } = readRecord(this.#folder, USE_ORDER, this.#checksum) ?? {};
    const known = new Set(ids);
    for (const id of ids) {
      const entry = this.#index.get(id);
      if (entry) this.#index.touch(entry);
    }
    const later = [...this.#index.values()].filter(({ id }) => !known.has(id));
    for (const entry of later.sort((a, b) => a.file.header.sequence - b.file.header.sequence)) this.#index.touch(entry);
  }

  /** An entry was used. */
  note(): void {
    this.#changed = true;
    this.#timer ??= setTimeout(() => void this.#write(), EVERY_MS).unref();
  }

  /** Writes what is not written yet. */
  async close(): Promise<void> {
    await this.#write();
  }

  async #write(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#writing;
    if (!this.#changed) return;
    this.#changed = false;
    const ids = [...this.#index.values()].sort((a, b) => a.lastUse - b.lastUse).map(({ id }) => id);
    this.#writing = writeRecord(this.#folder, USE_ORDER, { ids }, this.#checksum);
    await this.#writing;
  }
}
