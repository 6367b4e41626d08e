/**
 * How much a session folder may hold and how fast it may be written, and what goes when there is no room.
 *
 * Invariants: least harm first: what a longer checkpoint of the same session makes superfluous, then captures at chunk ends,
 * then at prompt ends, then at turn ends, each the longest unused first; never one that is being restored or is waited for.
 * Time is taken from a clock that only goes forward.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as elapsed } from 'node:timers/promises';
import type { IndexEntry } from './checkpoint-index.js';
import type { NotStoredReason } from './save.js';
import type { Segment } from './segment-table.js';

export interface DiskBudget {
  /** Most bytes of all files of the folder. */
  readonly bytes: number;
  /** What other users of the disk must be left with. */
  readonly leastFreeBytes: number;
  /** Most bytes written a second, over a while; 0: no limit. */
  readonly bytesPerSecond: number;
}

const KIND_ORDER = { chunk: 0, prompt: 1, turn: 2 } as const;

/** The entries that may go, in the order in which they go. */
export function evictionOrder(entries: Iterable<IndexEntry>): IndexEntry[] {
  return [...entries]
    .filter(({ users }) => users === 0)
    .sort(
      (a, b) =>
        Number(b.superseded) - Number(a.superseded) || KIND_ORDER[a.kind] - KIND_ORDER[b.kind] || a.lastUse - b.lastUse,
    );
}

/** A folder that may have to give something up. */
export interface CrowdedFolder {
  readonly budget: DiskBudget;
  /** Bytes of all its files now. */
  readonly used: () => number;
  /** Bytes that the disk has left. */
  readonly free: () => number;
  /** Takes away what nobody needs. */
  readonly dropUnneeded: () => void;
  readonly entries: () => Iterable<IndexEntry>;
  readonly evict: (entry: IndexEntry) => void;
  /** Resolves when what was given up is off the disk. */
  readonly settled: () => Promise<void>;
}

/**
 * Evicts until so many bytes fit; why they do not when nothing more may go.
 * @param reused segments that must stay for the newcomer
 */
export async function makeRoom(
  bytes: number,
  reused: readonly Segment[],
  folder: CrowdedFolder,
): Promise<NotStoredReason | undefined> {
  const { budget } = folder;
  const needed = reused.reduce((sum, { file }) => sum + file.byteLength, bytes);
  if (needed > budget.bytes) return 'over_budget';
  const isFree = (): boolean => folder.free() - bytes - budget.leastFreeBytes >= 0;
  const fits = (): boolean => folder.used() + bytes <= budget.bytes;
  if (fits() && isFree()) return undefined;
  folder.dropUnneeded();
  for (const entry of evictionOrder(folder.entries())) {
    await folder.settled(); // only what is gone from the disk has made room on it
    if (fits() && isFree()) return undefined;
    folder.evict(entry);
  }
  await folder.settled();
  if (!fits()) return 'over_budget';
  return isFree() ? undefined : 'disk_low';
}

/** A second's worth may be written at once; more waits. */
export class WritePace {
  readonly #bytesPerSecond: number;
  /** When everything written so far will be paid for, in milliseconds. */
  #paidAt = 0;
  /** Set for a flush: nobody waits any more. */
  unlimited = false;

  constructor(bytesPerSecond: number) {
    this.#bytesPerSecond = bytesPerSecond;
  }

  /** Resolves when `bytes` may be written; rejects when the signal aborts. */
  async take(bytes: number, signal?: AbortSignal): Promise<void> {
    if (this.#bytesPerSecond <= 0) return;
    const cost = (1000 * bytes) / this.#bytesPerSecond;
    this.#paidAt = Math.max(this.#paidAt, performance.now()) + cost;
    const SLICE_MS = 100; // so that a flush need not wait for a long sleep to end
    for (;;) {
      const wait = this.#paidAt - performance.now() - 1000;
      if (wait <= 0 || this.unlimited) return;
      await elapsed(Math.min(wait, SLICE_MS), undefined, { signal });
    }
  }
}
