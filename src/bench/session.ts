/**
 * What the parts of the bench share: the options, the probes, and a synthetic model open on a number of threads.
 *
 * Invariants: one model is in memory at a time; a session gives everything back when it is closed, also after a failure.
 */
import type { Backend, BackendName } from '../engine/backends/backend.js';
import { withBackend } from '../engine/backends/open-backend.js';
import { loadSynthetic, type SyntheticModel, type SyntheticSize } from '../families/synthetic.js';
import type { Scheduler } from '../schedule/scheduler.js';
import type { MachineProbes } from './probe.js';
import { benchScheduler } from './token-run.js';

export interface BenchContext {
  readonly size: SyntheticSize;
  /** Fewer and shorter rounds: the figures are rough. */
  readonly quick: boolean;
  readonly backend: BackendName | 'auto';
  readonly probes: MachineProbes;
  readonly signal?: AbortSignal | undefined;
  /** Says what goes on, for a line on the terminal. */
  readonly progress: (text: string) => void;
}

/** How long prompts and contexts are, by the size of the model. */
export interface Lengths {
  readonly context: number;
  /** Prompts of the prefill part. */
  readonly prompts: readonly number[];
  /** A prompt that keeps the engine busy for seconds. */
  readonly longPrompt: number;
  /** Prompt before the decoded tokens. */
  readonly decodeAfter: number;
}

export const LENGTHS: Readonly<Record<SyntheticSize, Lengths>> = {
  standard: { context: 2560, prompts: [128, 512], longPrompt: 2000, decodeAfter: 64 },
  tiny: { context: 256, prompts: [32, 64], longPrompt: 200, decodeAfter: 16 },
};

/** Rows of one plan, as a server has them by default. */
export const PREFILL_CHUNK = 512;
const SEED = 2;

export interface BenchSession {
  readonly context: BenchContext;
  readonly backend: Backend;
  readonly threads: number;
  readonly synthetic: SyntheticModel;
  readonly scheduler: Scheduler;
  readonly lengths: Lengths;
}

/** Makes the model, works with it, and gives it back. */
export async function withSession<T>(
  context: BenchContext,
  threads: number,
  work: (session: BenchSession) => Promise<T>,
): Promise<T> {
  return withBackend(context.backend, threads, async ({ backend }) => {
    const lengths = LENGTHS[context.size];
    const synthetic = await loadSynthetic({
      size: context.size,
      seed: SEED,
      id: 'synthetic',
      backend,
      dtype: 'bf16',
      contextLength: lengths.context,
      gatePolicy: 'strict',
      maxRows: PREFILL_CHUNK,
      sequences: 1,
      signal: context.signal,
      progress: ({ loadedBytes, totalBytes }) =>
        context.progress(`making weights ${Math.floor((100 * loadedBytes) / totalBytes)} %`),
    });
    const scheduler = benchScheduler(synthetic.model, PREFILL_CHUNK);
    try {
      return await work({ context, backend, threads, synthetic, scheduler, lengths });
    } finally {
      await scheduler.shutdown({ drainMs: 0 });
      await synthetic.model.close();
    }
  });
}
