/**
 * Metrics of kept sessions: what is held in memory and on disk, what came of restores and saves.
 *
 * Invariant: values are read when metrics are asked for, from the counts that /health shows; labels are names of models,
 * places, reasons and kinds, never of a session.
 */
import { Counter, Gauge, type Registry } from 'prom-client';

/** Figures of one model; counts are sums since its start. */
export interface SessionFigures {
  readonly model: string;
  /** ram, disk, and queue: what waits to be written. */
  readonly held: Readonly<
    Record<string, { readonly bytes: number; readonly budgetBytes?: number; readonly entries: number }>
  >;
  /** `ram`, `disk`, or why nothing was restored. */
  readonly restores: Readonly<Record<string, number>>;
  readonly evicted: Readonly<Record<string, number>>;
  /** By place, then by reason. */
  readonly refused: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** Bytes by what they are. */
  readonly written: Readonly<Record<string, number>>;
}

interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

interface Family {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
  readonly samples: (figures: SessionFigures) => readonly Sample[];
}

const byName = (counts: Readonly<Record<string, number>>, label: string): Sample[] =>
  Object.entries(counts).map(([name, value]) => ({ labels: { [label]: name }, value }));

const GAUGES: readonly Family[] = [
  {
    name: 'plumbline_session_bytes',
    help: 'Bytes of kept states: in memory (ram), in the session folder (disk), in memory for the writer (queue)',
    labels: ['place'],
    samples: ({ held }) => Object.entries(held).map(([place, { bytes }]) => ({ labels: { place }, value: bytes })),
  },
  {
    name: 'plumbline_session_budget_bytes',
    help: 'Most bytes that may be kept',
    labels: ['place'],
    samples: ({ held }) =>
      Object.entries(held).flatMap(([place, { budgetBytes }]) => {
        return budgetBytes === undefined ? [] : [{ labels: { place }, value: budgetBytes }];
      }),
  },
  {
    name: 'plumbline_session_entries',
    help: 'Kept captures of session states',
    labels: ['place'],
    samples: ({ held }) => Object.entries(held).map(([place, { entries }]) => ({ labels: { place }, value: entries })),
  },
];

const COUNTERS: readonly Family[] = [
  {
    name: 'plumbline_session_restores_total',
    help: 'Starts of requests by where they began (ram, disk) or why they began with nothing',
    labels: ['outcome'],
    samples: ({ restores }) => byName(restores, 'outcome'),
  },
  {
    name: 'plumbline_session_evictions_total',
    help: 'Captures given up for others',
    labels: ['place'],
    samples: ({ evicted }) => byName(evicted, 'place'),
  },
  {
    name: 'plumbline_session_refused_total',
    help: 'Captures that were not kept, by reason',
    labels: ['place', 'reason'],
    samples: ({ refused }) =>
      Object.entries(refused).flatMap(([place, reasons]) => {
        return byName(reasons, 'reason').map(({ labels, value }) => ({ labels: { place, ...labels }, value }));
      }),
  },
  {
    name: 'plumbline_session_written_bytes_total',
    help: 'Bytes written to the session folder: new pages, their records, fixed parts of states, everything else',
    labels: ['kind'],
    samples: ({ written }) => byName(written, 'kind'),
  },
];

/** @param figures asked at every scrape; one for each model that keeps sessions */
export function registerSessionMetrics(registry: Registry, figures: () => readonly SessionFigures[]): void {
  /** What makes a metric of a family; at every scrape it is emptied and `add` is given all its values. */
  const configuration = <T extends { reset(): void }>(
    { name, help, labels, samples }: Family,
    add: (metric: T, sample: Sample) => void,
  ) => ({
    name,
    help,
    labelNames: ['model', ...labels],
    registers: [registry],
    collect(this: T) {
      this.reset();
      for (const one of figures()) {
        for (const sample of samples(one)) add(this, { ...sample, labels: { model: one.model, ...sample.labels } });
      }
    },
  });
  for (const family of GAUGES)
    new Gauge(configuration<Gauge>(family, (metric, { labels, value }) => metric.set(labels, value)));
  for (const family of COUNTERS)
    new Counter(configuration<Counter>(family, (metric, { labels, value }) => metric.inc(labels, value)));
}
