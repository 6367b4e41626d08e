import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeLanguageModel } from '../../test/support/fake-language-model.js';
import type { DraftHead, LanguageModel, Speculation } from '../engine/model.js';
import { PlumblineError } from '../errors.js';
import { runWorks } from './run-work.js';
import { releaseResult, type Work } from './sequence.js';

type Outcome = 'all' | 'fewer' | 'failure';

const refusal = (): PlumblineError => new PlumblineError('out_of_memory', 'no room');

/** A model whose head and commits make states of the fake model, all, fewer, or none. */
function modelOf(fake: FakeLanguageModel, drafts: Outcome, commits: Outcome): LanguageModel {
  const count = (outcome: Outcome, wanted: number): number => {
    if (outcome === 'failure') throw refusal();
    return outcome === 'all' ? wanted : wanted - 1;
  };
  const head: DraftHead = {
    hiddenWidth: 1,
    newState: () => fake.newState(),
    forward: async (batch) =>
      Array.from({ length: count(drafts, batch.length) }, () => ({
        state: fake.newState(),
        further: [{ token: 1, state: fake.newState(), logits: new Float32Array(1), hidden: new Float32Array(1) }],
      })),
  };
  const speculation: Speculation = {
    maxWindow: 4,
    head,
    commit: async (batch) => Array.from({ length: count(commits, batch.length) }, () => fake.newState()),
  };
  return { ...(fake as LanguageModel), speculation };
}

function works(fake: FakeLanguageModel): { readonly works: Work[]; readonly give: () => void } {
  const state = fake.newState();
  const request = { state, tokens: [1], hidden: [new Float32Array(1)], output: 'last' as const };
  const commit = { before: state, after: state, window: { tokens: 2 }, keep: 1 };
  return {
    works: [
      { kind: 'draft', request },
      { kind: 'draft', request, commit },
      { kind: 'draft', request },
      { kind: 'draft', request, commit },
    ],
    give: () => state.release(),
  };
}

test('commits that drafts bring along come back with their own draft', async () => {
  const fake = new FakeLanguageModel();
  const { works: given, give } = works(fake);
  const results = await runWorks(modelOf(fake, 'all', 'all'), given);
  assert.deepEqual(
    results.map((result) => result.kind === 'draft' && result.committed !== undefined),
    [false, true, false, true],
  );
  for (const result of results) releaseResult(result);
  give();
  assert.equal(fake.liveStates, 0);
});

test('a run of drafts and commits of which either fails, or comes back short, makes no state', async () => {
  for (const drafts of ['all', 'fewer', 'failure'] as const) {
    for (const commits of ['all', 'fewer', 'failure'] as const) {
      if (drafts === 'all' && commits === 'all') continue;
      const fake = new FakeLanguageModel();
      const { works: given, give } = works(fake);
      const expected = drafts === 'failure' || commits === 'failure' ? 'out_of_memory' : 'internal_error';
      await assert.rejects(
        runWorks(modelOf(fake, drafts, commits), given),
        (error) => error instanceof PlumblineError && error.code === expected,
        `${drafts} drafts, ${commits} commits`,
      );
      give();
      assert.equal(fake.liveStates, 0, `${drafts} drafts, ${commits} commits`);
    }
  }
});
