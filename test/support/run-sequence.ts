/** Runs one sequence alone, whatever loop it follows, and collects what it brought. */
import type { LanguageModel } from '../../src/engine/model.js';
import { runWorks } from '../../src/generate/run-work.js';
import type { Step, TokenSequence, Work, WorkResult } from '../../src/generate/sequence.js';

export async function runWork(model: LanguageModel, work: Work): Promise<WorkResult> {
  const [result] = await runWorks(model, [work]);
  return result!;
}

/** All steps to the end; the sequence keeps its states. */
export async function runSequence(model: LanguageModel, sequence: TokenSequence): Promise<Step[]> {
  const steps: Step[] = [];
  for (let work = sequence.work; work !== undefined; work = sequence.work) {
    steps.push(...sequence.take(await runWork(model, work)));
  }
  return steps;
}

export function tokensOf(steps: readonly Step[]): number[] {
  return steps.flatMap((step) => (step.kind === 'token' ? [step.token.tokenId as number] : []));
}
