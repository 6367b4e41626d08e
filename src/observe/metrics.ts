/**
 * Prometheus metrics of one server. Each server has its own registry, so that several can live in one process.
 *
 * Invariant: label values come from fixed sets (routes by pattern, error codes, sites), never from what a client sent.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { LogitsCensus } from '../errors.js';
import { registerSessionMetrics, type SessionFigures } from './session-metrics.js';

const LATENCY_BUCKETS_S = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const TOKEN_BUCKETS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

/** Figures that are read when metrics are asked for. */
export interface LiveFigures {
  readonly running: number;
  readonly waiting: number;
  /** Absent while no sessions are kept. */
  readonly containment?: ContainmentFigures | undefined;
  /** One for each model that keeps sessions. */
  readonly sessions?: readonly SessionFigures[] | undefined;
}

/** Sums since the start, but for the last. */
export interface ContainmentFigures {
  readonly containments: number;
  readonly savesRefused: number;
  readonly restoresRefused: number;
  readonly writeFailures: number;
  /** Sessions that are failing, or whose next turn must start cold. */
  readonly notReady: number;
}

export interface FinishedGeneration {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
  readonly prefillMs: number;
  readonly decodeMs: number;
  readonly logitsWarning?: { readonly rows: number } | undefined;
}

export class Metrics {
  readonly #registry = new Registry();
  readonly #requests = new Counter({
    name: 'plumbline_http_requests_total',
    help: 'HTTP requests by route and status',
    labelNames: ['method', 'route', 'status'],
    registers: [this.#registry],
  });
  readonly #generations = new Counter({
    name: 'plumbline_generations_total',
    help: 'Generations by how they ended: a finish reason, or the code of an error',
    labelNames: ['model', 'outcome'],
    registers: [this.#registry],
  });
  readonly #tokens = new Counter({
    name: 'plumbline_tokens_total',
    help: 'Tokens of finished generations: prompt (cached ones included), cached, completion',
    labelNames: ['model', 'kind'],
    registers: [this.#registry],
  });
  readonly #firstToken = new Histogram({
    name: 'plumbline_time_to_first_token_seconds',
    help: 'From the arrival of a request to its first token, waiting included',
    labelNames: ['model'],
    buckets: LATENCY_BUCKETS_S,
    registers: [this.#registry],
  });
  readonly #perToken = new Histogram({
    name: 'plumbline_decode_seconds_per_token',
    help: 'Decode time of finished generations, a token',
    labelNames: ['model'],
    buckets: TOKEN_BUCKETS_S,
    registers: [this.#registry],
  });
  readonly #nonFinite = new Counter({
    name: 'plumbline_non_finite_rows_total',
    help: 'Rows of logits from which no token could be made: nan, inf, or masked (nothing finite)',
    labelNames: ['family', 'site', 'kind'],
    registers: [this.#registry],
  });

  readonly #containmentTime = new Histogram({
    name: 'plumbline_containment_seconds',
    help: 'From an invalid row of logits until everything of its session was dropped and the client could be told',
    buckets: LATENCY_BUCKETS_S,
    registers: [this.#registry],
  });

  readonly #observedRows = new Counter({
    name: 'plumbline_observed_non_finite_rows_total',
    help: 'Rows of finished generations that held NaN, +infinity or nothing finite and were made into tokens by their law',
    labelNames: ['family', 'model'],
    registers: [this.#registry],
  });

  /** @param live asked at every scrape. */
  constructor(live: () => LiveFigures) {
    this.#countContainments(live);
    registerSessionMetrics(this.#registry, () => live().sessions ?? []);
    const queue = new Gauge({
      name: 'plumbline_requests',
      help: 'Requests that run or wait now',
      labelNames: ['state'],
      registers: [this.#registry],
      collect() {
        const { running, waiting } = live();
        this.set({ state: 'running' }, running);
        this.set({ state: 'waiting' }, waiting);
      },
    });
    queue.set({ state: 'running' }, 0);
    new Gauge({
      name: 'plumbline_resident_bytes',
      help: 'Resident memory of the process',
      registers: [this.#registry],
      collect() {
        this.set(process.memoryUsage.rss());
      },
    });
  }

  request(method: string, route: string, status: number): void {
    this.#requests.inc({ method, route, status: String(status) });
  }

  firstToken(model: string, milliseconds: number): void {
    this.#firstToken.observe({ model }, milliseconds / 1000);
  }

  /** @param usage absent when the generation failed. */
  generation(model: string, outcome: string, usage?: FinishedGeneration): void {
    this.#generations.inc({ model, outcome });
    if (usage === undefined) return;
    this.#tokens.inc({ model, kind: 'prompt' }, usage.promptTokens);
    this.#tokens.inc({ model, kind: 'cached' }, usage.cachedTokens);
    this.#tokens.inc({ model, kind: 'completion' }, usage.completionTokens);
    if (usage.completionTokens > 0) this.#perToken.observe({ model }, usage.decodeMs / 1000 / usage.completionTokens);
  }

  containment(milliseconds: number): void {
    this.#containmentTime.observe(milliseconds / 1000);
  }

  #countContainments(live: () => LiveFigures): void {
    const sums = {
      plumbline_containments_total: ['Failed requests whose session was contained', 'containments'],
      plumbline_fenced_saves_total: ['Stores of session state refused because its session had failed', 'savesRefused'],
      plumbline_fenced_restores_total: ['Restores refused because a session had failed', 'restoresRefused'],
      plumbline_fence_write_failures_total: ['Fences that could not be written to the disk', 'writeFailures'],
    } as const;
    for (const [name, [help, figure]] of Object.entries(sums)) {
      new Counter({
        name,
        help,
        registers: [this.#registry],
        collect() {
          this.reset();
          this.inc(live().containment?.[figure] ?? 0);
        },
      });
    }
    new Gauge({
      name: 'plumbline_fenced_sessions',
      help: 'Sessions that are failing, or whose next turn must start cold',
      registers: [this.#registry],
      collect() {
        this.set(live().containment?.notReady ?? 0);
      },
    });
  }

  observedRows(family: string, model: string, rows: number): void {
    this.#observedRows.inc({ family, model }, rows);
  }

  nonFiniteRow(family: string, census: LogitsCensus): void {
    this.#nonFinite.inc({ family, site: census.site, kind: rowKind(census) });
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  async text(): Promise<string> {
    return this.#registry.metrics();
  }
}

function rowKind({ nanCount, infCount, vocabSize }: LogitsCensus): 'nan' | 'inf' | 'masked' {
  if (nanCount > 0) return 'nan';
  return infCount === vocabSize ? 'masked' : 'inf';
}
