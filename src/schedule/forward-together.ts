/**
 * One run over the next work of several jobs: a forward of the trunk, a forward of the draft head, or a commit.
 *
 * Invariants: a job that ends while the forward runs does not disturb the others, and when none is left the forward is
 * given up; a forward that fails made no new state, so each of its jobs is tried alone, and only those that fail alone
 * fail. What poisons the process is thrown to the caller instead.
 */
import { PlumblineError, toPlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { releaseResult, type Work, type WorkResult } from '../generate/sequence.js';
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
    results = await runWork(model, works, abandon.signal);
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

/** Works of equal groups may run together: same kind, same phase, same output. */
export function workGroup(work: Work): string {
  switch (work.kind) {
    case 'forward':
      return `forward/${work.phase}/${work.request.revocable === true ? 'revocable' : 'plain'}`;
    case 'draft':
      return `draft/${work.request.output}`;
    case 'commit':
      return 'commit';
  }
}

async function runWork(model: LanguageModel, works: readonly Work[], signal: AbortSignal): Promise<WorkResult[]> {
  const [first] = works;
  if (first === undefined || works.some((work) => workGroup(work) !== workGroup(first))) {
    throw new PlumblineError('internal_error', 'a run needs work, all of one group');
  }
  const results = await runGroup(model, first, works, signal);
  if (results.length === works.length) return results;
  for (const result of results) releaseResult(result);
  throw new PlumblineError('internal_error', `a run of ${works.length} works returned ${results.length} results`);
}

async function runGroup(
  model: LanguageModel,
  first: Work,
  works: readonly Work[],
  signal: AbortSignal,
): Promise<WorkResult[]> {
  switch (first.kind) {
    case 'forward': {
      const requests = works.flatMap((work) => (work.kind === 'forward' ? [work.request] : []));
      const results = await model.forward(requests, { phase: first.phase, signal });
      return results.map((result) => ({ kind: 'forward', result }));
    }
    case 'draft': {
      const requests = works.flatMap((work) => (work.kind === 'draft' ? [work.request] : []));
      const results = (await model.speculation?.head?.forward(requests, { signal })) ?? [];
      return results.map((result) => ({ kind: 'draft', result }));
    }
    case 'commit': {
      const requests = works.flatMap((work) => (work.kind === 'commit' ? [work.request] : []));
      const states = (await model.speculation?.commit(requests, { signal })) ?? [];
      return states.map((state) => ({ kind: 'commit', state }));
    }
  }
}
