/**
 * Judges a draft head against golden prompts: at every step of a continuation, the head's greedy tokens at depths 1 to 3,
 * given that the drafts before were right.
 */
import type { DraftHead, LanguageModel, SequenceState } from '../engine/model.js';
import { argmax } from './compare.js';

export interface GoldenDrafts {
  readonly inputIds: readonly number[];
  readonly outputIds: readonly number[];
  /** Per step i: the head's tokens for outputIds[i + 1 …], when the primary is outputIds[i]. */
  readonly drafts: readonly (readonly number[])[];
}

/** How many of the draft tokens the head gives too; `equalByStep` says which, by step and depth. */
export async function countEqualDrafts(
  model: LanguageModel,
  head: DraftHead,
  { inputIds, outputIds, drafts }: GoldenDrafts,
): Promise<{ readonly equal: number; readonly total: number; readonly equalByStep: readonly (readonly boolean[])[] }> {
  const sequence = [...inputIds, ...outputIds];
  const empty = model.newState();
  const [trunk] = await model.forward([{ state: empty, tokens: sequence, logits: 'none', hidden: 'all' }], {
    phase: 'prefill',
  });
  empty.release();
  trunk!.state.release();
  const hidden = trunk!.hidden ?? [];
  const equalByStep: boolean[][] = [];
  let cache = await appendPrompt(head, inputIds, hidden);
  try {
    for (const [step, expected] of drafts.entries()) {
      const equals: boolean[] = [];
      equalByStep.push(equals);
      const at = inputIds.length + step;
      let primary: SequenceState | undefined;
      let state = cache.retain();
      let stream = hidden[at - 1]!;
      for (const [depth, token] of expected.entries()) {
        const [result] = await head.forward(
          [{ state, tokens: [sequence[at + depth]!], hidden: [stream], output: 'last' }],
          {},
        );
        state.release();
        state = result!.state;
        primary ??= state.retain();
        stream = result!.hidden!;
        equals.push(argmax(result!.logits!) === token);
      }
      state.release();
      if (primary) {
        cache.release();
        cache = primary;
      }
    }
  } finally {
    cache.release();
  }
  const all = equalByStep.flat();
  return { equal: all.filter(Boolean).length, total: all.length, equalByStep };
}

/** The head's cache after a prompt: a row for every token but the last. */
async function appendPrompt(
  head: DraftHead,
  inputIds: readonly number[],
  hidden: readonly Float32Array[],
): Promise<SequenceState> {
  const empty = head.newState();
  if (inputIds.length === 1) return empty;
  const [result] = await head.forward(
    [{ state: empty, tokens: inputIds.slice(1), hidden: hidden.slice(0, inputIds.length - 1), output: 'none' }],
    {},
  );
  empty.release();
  return result!.state;
}
