/**
 * What the server tells about its work, in one place: log lines, metrics, and a short memory of failed generations for
 * /health. Nothing in it holds text of a prompt or an answer.
 */
import { NonFiniteLogitsError, type LogitsCensus, type PlumblineError } from '../errors.js';
import type { Log } from './log.js';
import { Metrics, type FinishedGeneration, type LiveFigures } from './metrics.js';

const KEPT_RECEIPTS = 16;

/** A generation that failed. */
export interface FailureReceipt {
  /** ISO 8601. */
  readonly at: string;
  readonly requestId: string;
  readonly model: string;
  readonly code: string;
  readonly emittedTokens: number;
  readonly census?: LogitsCensus | undefined;
}

export interface RequestRecord {
  readonly requestId: string;
  readonly method: string;
  /** The pattern of the route, never the path that a client sent. */
  readonly route: string;
  readonly status: number;
  readonly milliseconds: number;
  readonly failure?: PlumblineError | undefined;
}

export interface GenerationRecord {
  readonly requestId: string;
  readonly model: string;
  readonly family: string;
  readonly emittedTokens: number;
  /** From the arrival of the request. */
  readonly firstTokenMs?: number | undefined;
  readonly outcome:
    | { readonly kind: 'finished'; readonly reason: string; readonly usage: FinishedGeneration }
    | { readonly kind: 'failed'; readonly error: PlumblineError };
}

/** What is told of a failure that was contained; whatever else it holds goes to the log as it is. */
export interface ContainmentRecord {
  readonly requestId: string;
  readonly milliseconds: number;
  readonly errors: readonly string[];
}

export class Telemetry {
  readonly metrics: Metrics;
  readonly #log: Log;
  readonly #receipts: FailureReceipt[] = [];

  constructor(log: Log, live: () => LiveFigures) {
    this.#log = log;
    this.metrics = new Metrics(live);
  }

  /** The latest failures, newest first. */
  get receipts(): readonly FailureReceipt[] {
    return this.#receipts;
  }

  request({ requestId, method, route, status, milliseconds, failure }: RequestRecord): void {
    this.metrics.request(method, route, status);
    const fields = { request: requestId, method, route, status, ms: Math.round(milliseconds), code: failure?.code };
    if (status >= 500) this.#log.error({ ...fields, ...cause(failure) }, failure?.message ?? 'request failed');
    else if (failure !== undefined) this.#log.info(fields, failure.message);
    else this.#log.debug(fields, 'request');
  }

  containment(receipt: ContainmentRecord): void {
    this.metrics.containment(receipt.milliseconds);
    const { requestId, ...fields } = receipt;
    const whole = receipt.errors.length === 0;
    this.#log[whole ? 'warn' : 'error'](
      { request: requestId, ...fields },
      whole
        ? 'a session was dropped after an invalid row'
        : 'a session was dropped after an invalid row, not all of it',
    );
  }

  generation(record: GenerationRecord): void {
    const { requestId, model, family, emittedTokens, firstTokenMs, outcome } = record;
    const fields = { request: requestId, model, emitted: emittedTokens };
    if (firstTokenMs !== undefined) this.metrics.firstToken(model, firstTokenMs);
    if (outcome.kind === 'finished') {
      const { reason, usage } = outcome;
      this.metrics.generation(model, reason, usage);
      const { logitsWarning } = usage;
      if (logitsWarning !== undefined) this.metrics.observedRows(family, model, logitsWarning.rows);
      this.#log.info(
        {
          ...fields,
          reason,
          prompt: usage.promptTokens,
          cached: usage.cachedTokens,
          prefill_ms: Math.round(usage.prefillMs),
          decode_ms: Math.round(usage.decodeMs),
          non_finite_rows: logitsWarning?.rows,
        },
        'generation finished',
      );
      return;
    }
    const { error } = outcome;
    const census = error instanceof NonFiniteLogitsError ? error.census : undefined;
    this.metrics.generation(model, error.code);
    if (census !== undefined) this.metrics.nonFiniteRow(family, census);
    if (error.code === 'request_cancelled') {
      this.#log.info(fields, 'generation cancelled: the client went away');
      return;
    }
    this.#receipts.unshift({ at: new Date().toISOString(), requestId, model, code: error.code, emittedTokens, census });
    this.#receipts.length = Math.min(this.#receipts.length, KEPT_RECEIPTS);
    this.#log.error({ ...fields, code: error.code, ...cause(error) }, error.message);
  }
}

/** The original error behind a PlumblineError: for the log alone, never for an answer. */
function cause(error: PlumblineError | undefined): { err?: unknown } {
  return error?.cause === undefined ? {} : { err: error.cause };
}
