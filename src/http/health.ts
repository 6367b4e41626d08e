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
  /** Bytes by purpose, as planned before loading. */
  readonly memory_plan: Readonly<Record<string, number>>;
  readonly queue: {
    readonly running: number;
    readonly waiting: number;
    readonly parallel: number;
    readonly max_queue: number;
  };
  readonly declined: readonly DeclinedPath[];
}

export interface HealthDetails {
  readonly version: string;
  readonly uptime_s: number;
  readonly models: readonly ModelHealth[];
}

export interface HealthReport extends Partial<HealthDetails> {
  readonly status: 'ok' | 'stopping';
  readonly active_requests?: number;
  /** The latest failed generations, newest first. */
  readonly recent_failures?: readonly FailureReceipt[];
}
