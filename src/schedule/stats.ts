/**
 * What a scheduler has done and is doing, in numbers, for /health and the metrics.
 *
 * Invariant: submitted = finished + failed + cancelled + queued + running, at any time; refused requests are counted
 * apart, because they never were in the queue.
 */
import type { ErrorCode } from '../errors.js';
import type { FinishReason } from './request.js';
import type { Job } from './job.js';

export type SchedulerMode =
  | 'accepting'
  /** Stopping: running requests go on for a while, nothing new is taken. */
  | 'draining'
  | 'stopped'
  /** A failure has poisoned the process; nothing is taken until it is started again. */
  | 'broken';

export interface SchedulerStats {
  readonly mode: SchedulerMode;
  readonly queued: number;
  /** Prefilling and decoding together. */
  readonly running: number;
  readonly prefilling: number;
  readonly decoding: number;
  readonly totals: Readonly<Record<'submitted' | 'finished' | 'failed' | 'cancelled', number>> & {
    /** Prompt tokens of the requests that came to their first token. */
    readonly promptTokens: number;
    /** Tokens made, also for requests that failed or were cancelled later. */
    readonly completionTokens: number;
  };
  readonly finishReasons: Readonly<Record<FinishReason, number>>;
  readonly failures: Readonly<Partial<Record<ErrorCode, number>>>;
  readonly refusals: Readonly<Partial<Record<ErrorCode, number>>>;
}

export class Counters {
  readonly totals = { submitted: 0, finished: 0, failed: 0, cancelled: 0, promptTokens: 0, completionTokens: 0 };
  readonly finishReasons: Record<FinishReason, number> = { stop: 0, length: 0 };
  readonly failures: Partial<Record<ErrorCode, number>> = {};
  readonly refusals: Partial<Record<ErrorCode, number>> = {};

  submitted(): void {
    this.totals.submitted++;
  }

  refused(code: ErrorCode): void {
    this.refusals[code] = (this.refusals[code] ?? 0) + 1;
  }

  ended({ state, request, completionTokens }: Job): void {
    this.totals.completionTokens += completionTokens;
    if (completionTokens > 0) this.totals.promptTokens += request.promptTokens.length;
    switch (state.phase) {
      case 'finished':
        this.totals.finished++;
        this.finishReasons[state.reason]++;
        return;
      case 'failed':
        this.totals.failed++;
        this.failures[state.error.code] = (this.failures[state.error.code] ?? 0) + 1;
        return;
      case 'cancelled':
        this.totals.cancelled++;
        return;
      case 'queued':
      case 'prefilling':
      case 'decoding':
        return;
    }
  }

  /** A copy, so that a reader's numbers stay as they were read. */
  snapshot(): Pick<SchedulerStats, 'totals' | 'finishReasons' | 'failures' | 'refusals'> {
    return structuredClone({
      totals: this.totals,
      finishReasons: this.finishReasons,
      failures: this.failures,
      refusals: this.refusals,
    });
  }
}
