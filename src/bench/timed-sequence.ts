/**
 * Runs a sequence alone, by hand, and tells how long each kind of its work took.
 *
 * Invariant: the time between two pieces of work (sampling, bookkeeping) is counted too, as `between`, so that the parts
 * add up to the whole.
 */
import { performance } from 'node:perf_hooks';
import { PlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { runWorks } from '../generate/run-work.js';
import type { TokenSequence, Work } from '../generate/sequence.js';

export interface TimedRun {
  readonly tokens: readonly number[];
  /** From the first token on: the prompt is not counted. */
  readonly decodeMs: number;
  /** Milliseconds and times of the work behind the first token, by kind: `verify`, `decode`, `draft`, `commit`, … */
  readonly works: ReadonlyMap<string, { readonly ms: number; readonly count: number }>;
}

export async function runTimed(model: LanguageModel, sequence: TokenSequence, signal?: AbortSignal): Promise<TimedRun> {
  const tokens: number[] = [];
  const works = new Map<string, { ms: number; count: number }>();
  let first: number | undefined;
  let last = performance.now();
  const note = (kind: string, since: number): void => {
    if (first === undefined) return;
    const entry = works.get(kind) ?? { ms: 0, count: 0 };
    works.set(kind, { ms: entry.ms + performance.now() - since, count: entry.count + 1 });
  };
  try {
    for (let work = sequence.work; work !== undefined; work = sequence.work) {
      if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'the measurement was cancelled');
      const start = performance.now();
      note('between', last);
      const [result] = await runWorks(model, [work], signal);
      note(kindOf(work), start);
      last = performance.now();
      for (const step of sequence.take(result!)) {
        if (step.kind !== 'token') continue;
        first ??= performance.now();
        tokens.push(step.token.tokenId);
      }
    }
  } finally {
    sequence.release();
  }
  return { tokens, decodeMs: performance.now() - (first ?? last), works };
}

function kindOf(work: Work): string {
  if (work.kind === 'forward') return work.phase;
  return work.kind === 'draft' && work.request.output === 'none' ? 'head-append' : work.kind;
}
