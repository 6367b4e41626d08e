/** GET /health: whether the server lives and how it computes, without a look into any request. */
import type { FailureReceipt } from '../observe/telemetry.js';
import type { StoreHealth } from '../sessions/checkpoints/store-counts.js';
import type { ContainmentReceipt } from '../sessions/containment/receipts.js';

/** One place where a fast or a warm path could have been taken and was not. */
export interface DeclinedPath {
  readonly path: string;
  readonly reason: string;
}

export interface ModelHealth {
  readonly id: string;
  readonly family: string;
  readonly context_length: number;
  readonly activation_law: string;
  readonly backend: {
    readonly name: string;
    readonly isa: string;
    readonly threads: number;
    /** Why this backend: asked for, or what the automatic choice went by. */
    readonly reason: string;
  };
  readonly memory: {
    /** As planned before loading; lines that are not counted stay on disk. */
    readonly plan: readonly { readonly name: string; readonly bytes: number; readonly counted: boolean }[];
    readonly needed_bytes: number;
    readonly available_bytes: number;
    /** Held by the backend now. */
    readonly allocated_bytes: number;
    readonly mapped_bytes: number;
  };
  readonly queue: {
    /** `accepting`, or why nothing is taken. */
    readonly mode: string;
    readonly running: number;
    readonly waiting: number;
    readonly parallel: number;
    readonly max_queue: number;
    readonly totals: Readonly<Record<string, number>>;
  };
  readonly sessions: SessionsHealth;
  readonly declined: readonly DeclinedPath[];
}

/** What is kept of conversations. */
export interface SessionsHealth {
  readonly mode: 'on' | 'off';
  readonly ram?:
    | {
        readonly budget_bytes: number;
        readonly used_bytes: number;
        readonly entries: number;
        readonly stored: number;
        readonly restored: number;
        readonly evicted: number;
        readonly refused_no_room: number;
        readonly refused_fenced: number;
      }
    | undefined;
  /** Absent without a session folder. */
  readonly disk?: StoreHealth | undefined;
  readonly containment?:
    | {
        /** Failed requests whose session was dropped. */
        readonly contained: number;
        /** Sessions that are failing, or whose next turn must start cold. */
        readonly not_ready: readonly { readonly session: string; readonly epoch: number; readonly state: string }[];
        readonly saves_refused: number;
        readonly restores_refused: number;
        /** False: a fence could not be written; its session is not kept on disk by this process any more. */
        readonly fence_durable?: boolean;
        /** False: a failed session is neither fenced nor deleted on disk; nothing is restored from there until it is. */
        readonly restores_from_disk?: boolean;
        /** Drops that failed and are tried again. */
        readonly drops_owed: number;
        /** The latest, newest first. */
        readonly receipts: readonly ContainmentReceipt[];
      }
    | undefined;
  /** Conversations that are known without a name. */
  readonly inferred?: number | undefined;
  /** Starts of requests by what came of the restore: `ram`, `disk`, or the reason. */
  readonly restores?: Readonly<Record<string, number>> | undefined;
}

export interface HealthDetails {
  readonly version: string;
  readonly uptime_s: number;
  readonly models: readonly ModelHealth[];
}

export interface HealthReport extends Partial<HealthDetails> {
  /**
   * degraded: a failure has made some of the models unusable (their queue's mode says so), the others go on; broken: all of
   * them; start the server again.
   */
  readonly status: 'ok' | 'stopping' | 'degraded' | 'broken';
  readonly active_requests?: number;
  /** The latest failed generations, newest first. */
  readonly recent_failures?: readonly FailureReceipt[];
}
