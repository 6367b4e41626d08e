/** What a store has done since it was opened, as /health shows it. */
import type { CaptureKind, RestoreReason } from '../types.js';
import type { DiskBudget } from './budget.js';
import type { NotStoredReason, SaveOutcome } from './save.js';
import type { ScanReport } from './scan.js';

export interface StoreHealth {
  readonly checkpoints: number;
  readonly segments: number;
  readonly bytes: number;
  readonly budget_bytes: number;
  readonly waiting: number;
  /** Memory of the states that wait to be written or are being written. */
  readonly waiting_bytes: number;
  readonly writing: boolean;
  readonly written: {
    readonly checkpoints: number;
    readonly bytes: number;
    readonly page_bytes: number;
    readonly record_bytes: number;
    readonly fixed_bytes: number;
    readonly overhead_bytes: number;
    /** Bytes written for each byte of new state; absent before the first. */
    readonly amplification?: number | undefined;
  };
  readonly restored: { readonly checkpoints: number; readonly bytes: number; readonly ms: number };
  /** How often something was not restored, by reason. */
  readonly rejected: Readonly<Partial<Record<RestoreReason, number>>>;
  /** How often a capture was not stored, by reason. */
  readonly not_stored: Readonly<Partial<Record<NotStoredReason, number>>>;
  /** The latest of those that the disk is to blame for; absent once a later capture was stored. */
  readonly failing?: { readonly reason: NotStoredReason; readonly since: string } | undefined;
  readonly evicted: Readonly<Partial<Record<CaptureKind, number>>>;
  readonly failed_removals: number;
  /** What was found when the folder was read. */
  readonly opened: {
    readonly damaged: number;
    readonly fenced: number;
    readonly orphans: number;
    readonly unreadable: number;
    readonly foreign: number;
    readonly other_versions: number;
    readonly staging: number;
  };
}

/** Reasons that come from the disk, not from how the conversation went. */
const FAILURES: ReadonlySet<NotStoredReason> = new Set([
  'disk_full',
  'disk_low',
  'over_budget',
  'read_only',
  'write_failed',
  'lock_lost',
]);

type Counts<Key extends string> = Partial<Record<Key, number>>;
const increase = <Key extends string>(counts: Counts<Key>, key: Key): void => {
  counts[key] = (counts[key] ?? 0) + 1;
};

export class StoreCounts {
  readonly #written = { checkpoints: 0, pages: 0, records: 0, fixed: 0, overhead: 0 };
  readonly #restored = { checkpoints: 0, bytes: 0, ms: 0 };
  readonly #rejected: Counts<RestoreReason> = {};
  readonly #notStored: Counts<NotStoredReason> = {};
  readonly #evicted: Counts<CaptureKind> = {};
  #failing: StoreHealth['failing'];
  #failedRemovals = 0;

  saved(outcome: SaveOutcome, now: () => number): void {
    if (outcome.kind === 'not-stored') {
      increase(this.#notStored, outcome.reason);
      if (FAILURES.has(outcome.reason) && this.#failing?.reason !== outcome.reason) {
        this.#failing = { reason: outcome.reason, since: new Date(now()).toISOString() };
      }
      return;
    }
    this.#failing = undefined;
    const { pages, records, fixed, overhead } = outcome.bytes;
    this.#written.checkpoints++;
    this.#written.pages += pages;
    this.#written.records += records;
    this.#written.fixed += fixed;
    this.#written.overhead += overhead;
  }

  restored(bytes: number, milliseconds: number): void {
    this.#restored.checkpoints++;
    this.#restored.bytes += bytes;
    this.#restored.ms += milliseconds;
  }

  rejected(reason: RestoreReason): void {
    increase(this.#rejected, reason);
  }

  evicted(kind: CaptureKind): void {
    increase(this.#evicted, kind);
  }

  removalFailed(): void {
    this.#failedRemovals++;
  }

  health(now: {
    readonly checkpoints: number;
    readonly segments: number;
    readonly bytes: number;
    readonly budget: DiskBudget;
    readonly waiting: number;
    readonly waitingBytes: number;
    readonly writing: boolean;
    readonly scan: ScanReport;
    readonly sweptStaging: number;
  }): StoreHealth {
    const { checkpoints, pages, records, fixed, overhead } = this.#written;
    const state = pages + records + fixed;
    const { damaged, fenced, orphans, unreadable, foreign, otherVersions } = now.scan;
    return {
      checkpoints: now.checkpoints,
      segments: now.segments,
      bytes: now.bytes,
      budget_bytes: now.budget.bytes,
      waiting: now.waiting,
      waiting_bytes: now.waitingBytes,
      writing: now.writing,
      written: {
        checkpoints,
        bytes: state + overhead,
        page_bytes: pages,
        record_bytes: records,
        fixed_bytes: fixed,
        overhead_bytes: overhead,
        amplification: state === 0 ? undefined : (state + overhead) / state,
      },
      restored: { ...this.#restored },
      rejected: { ...this.#rejected },
      not_stored: { ...this.#notStored },
      failing: this.#failing,
      evicted: { ...this.#evicted },
      failed_removals: this.#failedRemovals,
      opened: {
        damaged,
        fenced,
        orphans,
        unreadable,
        foreign,
        other_versions: otherVersions.length,
        staging: now.sweptStaging,
      },
    };
  }
}
