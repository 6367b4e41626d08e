/**
 * Runs the parts of the bench in an order that keeps them from disturbing each other, and hands over each report as soon
 * as it is there. Nothing here is asserted: figures depend on the machine and on what else it does.
 *
 * Invariants: the memory part is the first thing that happens in the process; one synthetic model is made for each number
 * of threads and serves all parts that need it.
 */
import { availableParallelism, cpus } from 'node:os';
import type { BackendName } from '../engine/backends/backend.js';
import { cpuBackendStatus } from '../engine/backends/cpu/index.js';
import type { SyntheticSize } from '../families/synthetic.js';
import type { PartReport } from './figures.js';
import { benchDecode } from './parts/decode.js';
import { benchEmbedded } from './parts/embedded.js';
import { benchMemory } from './parts/memory.js';
import { benchPrefill } from './parts/prefill.js';
import { benchResponsiveness } from './parts/responsiveness.js';
import { benchSessions } from './parts/sessions.js';
import { benchSpeculate } from './parts/speculate.js';
import { machineProbes } from './probe.js';
import { withSession, type BenchContext, type BenchSession } from './session.js';

/** In the order in which they run. */
export const BENCH_PARTS = [
  'memory',
  'responsiveness',
  'decode',
  'prefill',
  'embedded',
  'speculate',
  'sessions',
] as const;
export type BenchPart = (typeof BENCH_PARTS)[number];

export interface BenchOptions {
  readonly parts: ReadonlySet<BenchPart>;
  readonly size: SyntheticSize;
  readonly quick: boolean;
  readonly backend: BackendName | 'auto';
  /** undefined: decode and prefill with one thread and with all, the other parts with all. */
  readonly threads?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onReport: (report: PartReport) => void;
  readonly onProgress: (text: string) => void;
}

const SESSION_PARTS: readonly [BenchPart, (session: BenchSession) => Promise<PartReport>][] = [
  ['memory', benchMemory],
  ['responsiveness', benchResponsiveness],
  ['decode', benchDecode],
  ['prefill', benchPrefill],
];
/** Measured again with one thread. */
const EACH_THREADS: ReadonlySet<BenchPart> = new Set(['decode', 'prefill']);

/** @throws what opening a backend or a model throws, and request_cancelled */
export async function runBench(options: BenchOptions): Promise<void> {
  const { parts, size, quick, backend, signal, onReport } = options;
  const context: BenchContext = {
    size,
    quick,
    backend,
    signal,
    probes: machineProbes(quick),
    progress: options.onProgress,
  };
  const most = options.threads ?? availableParallelism();
  for (const threads of most === 1 || options.threads !== undefined ? [most] : [most, 1]) {
    const wanted = SESSION_PARTS.filter(([part]) => parts.has(part) && (threads === most || EACH_THREADS.has(part)));
    if (wanted.length === 0) continue;
    await withSession(context, threads, async (session) => {
      for (const [, run] of wanted) onReport(await run(session));
    });
  }
  if (parts.has('embedded')) onReport(await benchEmbedded(context, most));
  if (parts.has('speculate')) onReport(await benchSpeculate(context, most));
  if (parts.has('sessions')) onReport(await benchSessions(context, most));
}

/** The machine in one line. */
export function describeMachine(): string {
  const status = cpuBackendStatus();
  const model = cpus()[0]?.model ?? 'unknown processor';
  const isa = status.available ? `, ${status.isa}` : '';
  return `${model}, ${availableParallelism()} processors${isa}; node ${process.version}, ${process.platform} ${process.arch}`;
}
