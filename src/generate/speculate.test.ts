import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeLanguageModel } from '../../test/support/fake-language-model.js';
import type { DraftHead } from '../engine/model.js';
import { PlumblineError } from '../errors.js';
import type { SpeculativeSampler } from '../sample/speculation.js';
import { createDepthPolicy } from './depth-policy.js';
import { SpeculativeSequence, type SpeculativeOptions } from './speculate.js';

const never = (): never => assert.fail('a sequence that did not start draws nothing');
const sampler: SpeculativeSampler = {
  seed: 0n,
  greedy: true,
  penalised: false,
  greedyDrafts: true,
  acceptance: 'plain',
  next: never,
  check: never,
  draft: never,
  accept: never,
};

function options(head: DraftHead, promptTokens: readonly number[]): SpeculativeOptions {
  return {
    promptTokens,
    maxTokens: 4,
    stopTokenIds: [],
    sampler,
    head,
    depthPolicy: createDepthPolicy('off', 3),
    contextCopy: undefined,
    maxWindow: 32,
  };
}

test('a sequence that cannot start gives back what it was handed', () => {
  const model = new FakeLanguageModel();
  const full: DraftHead = {
    hiddenWidth: 1,
    newState: () => {
      throw new PlumblineError('out_of_memory', 'no room for a state');
    },
    forward: never,
  };
  assert.throws(
    () => new SpeculativeSequence(model.newState(), options(full, [1])),
    (error) => error instanceof PlumblineError && error.code === 'out_of_memory',
  );
  assert.equal(model.liveStates, 0, 'no memory for the head');
  const roomy: DraftHead = { ...full, newState: () => model.newState() };
  assert.throws(() => new SpeculativeSequence(model.newState(), options(roomy, [])));
  assert.equal(model.liveStates, 0, 'no prompt');
});
