/** GET /health: whether the server lives and how it computes, without a look into any request. */
import type { FailureReceipt } from '../observe/telemetry.js';

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
  readonly declined: readonly DeclinedPath[];
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
