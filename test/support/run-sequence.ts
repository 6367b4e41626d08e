/** Runs one sequence alone, whatever loop it follows, and collects what it brought. */
import type { LanguageModel } from '../../src/engine/model.js';
import type { Step, TokenSequence, Work, WorkResult } from '../../src/generate/sequence.js';

export async function runWork(model: LanguageModel, work: Work): Promise<WorkResult> {
  switch (work.kind) {
    case 'forward': {
      const [result] = await model.forward([work.request], { phase: work.phase });
      return { kind: 'forward', result: result! };
    }
    case 'draft': {
      const [result] = await model.speculation!.head!.forward([work.request], {});
      return { kind: 'draft', result: result! };
    }
    case 'commit': {
      const [state] = await model.speculation!.commit([work.request], {});
      return { kind: 'commit', state: state! };
    }
  }
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
