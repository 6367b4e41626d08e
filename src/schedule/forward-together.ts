/**
 * One forward over the next work of several jobs.
 *
 * Invariants: a job that ends while the forward runs does not disturb the others, and when none is left the forward is
 * given up; a forward that fails made no new state, so each of its jobs is tried alone, and only those that fail alone
 * fail. What poisons the process is thrown to the caller instead.
 */
import { PlumblineError, toPlumblineError } from '../errors.js';
import type { ForwardResult, LanguageModel } from '../engine/model.js';
import type { Job } from './job.js';
import { isFinal } from './request-state.js';

/**
 * @param jobs at least one, all with work of one phase.
 * @throws PlumblineError that poisons the process; nothing else.
 */
export async function forwardTogether(model: LanguageModel, jobs: readonly Job[]): Promise<void> {
  const abandon = new AbortController();
  let waiting = jobs.length;
  const works = jobs.map((job) =>
    job.beginForward(() => {
      if (--waiting === 0) abandon.abort();
    }),
  );
  let results: ForwardResult[];
  try {
    results = await runForward(model, works, abandon.signal);
  } catch (thrown) {
    for (const job of jobs) job.endForward();
    const error = toPlumblineError(thrown);
    if (error.row.poisons === 'process') throw error;
    const left = jobs.filter((job) => !isFinal(job.state));
    if (jobs.length === 1) left[0]?.fail(error);
    else for (const job of left) if (!isFinal(job.state)) await forwardTogether(model, [job]);
    return;
  }
  jobs.forEach((job, index) => job.endForward(results[index]));
}

async function runForward(
  model: LanguageModel,
  works: readonly ReturnType<Job['beginForward']>[],
  signal: AbortSignal,
): Promise<ForwardResult[]> {
  const phase = works[0]?.phase;
  if (phase === undefined || works.some((work) => work.phase !== phase)) {
    throw new PlumblineError('internal_error', 'a forward needs sequences, all of one phase');
  }
  const results = await model.forward(
    works.map((work) => work.request),
    { phase, signal },
  );
  if (results.length === works.length) return results;
  for (const result of results) result.state.release();
  throw new PlumblineError(
    'internal_error',
    `a forward of ${works.length} sequences returned ${results.length} results`,
  );
}
