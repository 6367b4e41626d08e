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
