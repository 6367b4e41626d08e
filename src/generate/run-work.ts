/**
 * Works of sequences on their way to the model and back: those of one group run as one batch.
 *
 * Invariants: results come in the order of the works; a run that fails has made no state, also where half of it was done.
 */
import { PlumblineError } from '../errors.js';
import type { LanguageModel, SequenceState } from '../engine/model.js';
import { releaseResult, type Work, type WorkResult } from './sequence.js';

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

/** Runs works of one group. Rejects as the model does, and with internal_error for works or results that do not fit. */
export async function runWorks(
  model: LanguageModel,
  works: readonly Work[],
  signal?: AbortSignal,
): Promise<WorkResult[]> {
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
  signal: AbortSignal | undefined,
): Promise<WorkResult[]> {
  switch (first.kind) {
    case 'forward': {
      const requests = works.flatMap((work) => (work.kind === 'forward' ? [work.request] : []));
      const results = await model.forward(requests, { phase: first.phase, signal });
      return results.map((result) => ({ kind: 'forward', result }));
    }
    case 'draft':
      return runDrafts(model, works, signal);
    case 'commit': {
      const requests = works.flatMap((work) => (work.kind === 'commit' ? [work.request] : []));
      const states = (await model.speculation?.commit(requests, { signal })) ?? [];
      return states.map((state) => ({ kind: 'commit', state }));
    }
  }
}

/** Drafts, and beside them the commits that they bring along. */
async function runDrafts(
  model: LanguageModel,
  works: readonly Work[],
  signal: AbortSignal | undefined,
): Promise<WorkResult[]> {
  const { speculation } = model;
  const drafts = works.flatMap((work) => (work.kind === 'draft' ? [work] : []));
  const requests = drafts.map(({ request }) => request);
  const commits = drafts.flatMap(({ commit }) => (commit ? [commit] : []));
  if (!speculation?.head) return [];
  const [drafted, committed] = await Promise.allSettled([
    speculation.head.forward(requests, { signal }),
    commits.length > 0 ? speculation.commit(commits, { signal }) : Promise.resolve<SequenceState[]>([]),
  ]);
  const results: WorkResult[] =
    drafted.status === 'fulfilled' ? drafted.value.map((result) => ({ kind: 'draft', result })) : [];
  const states = committed.status === 'fulfilled' ? [...committed.value] : [];
  if (drafted.status === 'rejected' || committed.status === 'rejected' || states.length !== commits.length) {
    for (const result of results) releaseResult(result);
    for (const state of states) state.release();
    if (drafted.status === 'rejected') throw drafted.reason;
    if (committed.status === 'rejected') throw committed.reason;
    throw new PlumblineError('internal_error', `${commits.length} commits returned ${states.length} states`);
  }
  if (commits.length === 0) return results;
  if (results.length !== drafts.length) {
    for (const state of states) state.release();
    return results; // the caller says so, and gives them back
  }
  return results.map((result, i) => (drafts[i]!.commit ? { ...result, committed: states.shift()! } : result));
}
