/**
 * One run over the next work of several jobs: a forward of the trunk, a forward of the draft head, or a commit.
 *
 * Invariants: a job that ends while the forward runs does not disturb the others, and when none is left the forward is
 * given up; a forward that fails made no new state, so each of its jobs is tried alone, and only those that fail alone
 * fail. What poisons the process is thrown to the caller instead.
 */
import { toPlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { runWorks } from '../generate/run-work.js';
import type { WorkResult } from '../generate/sequence.js';
import type { Job } from './job.js';
import { isFinal } from './request-state.js';

/**
 * @param jobs at least one, all with work of one kind (`workGroup`).
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
  let results: WorkResult[];
  try {
    results = await runWorks(model, works, abandon.signal);
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
