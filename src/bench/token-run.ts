/**
 * Runs requests as a server does, through a scheduler of its own, and tells how long they took.
 *
 * Invariants: greedy, so that a run depends on nothing but the prompt; the text side does nothing, so that only the engine,
 * the sampler and the scheduler are in the figures.
 */
import { PlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { createSampler, samplingRules } from '../sample/sampler.js';
import type { GenerationRequest, GenerationUsage, TextSink } from '../schedule/request.js';
import { Scheduler } from '../schedule/scheduler.js';

export const SILENT: TextSink = { push: () => ({ text: '' }), flush: () => ({ text: '' }) };

/** A scheduler over a model without a tokenizer. */
export function benchScheduler(model: LanguageModel, prefillChunk: number): Scheduler {
  return new Scheduler({
    model,
    createSampler: () =>
      createSampler(
        model.laws.sampler,
        { ...samplingRules(model.laws.sampler).defaults, temperature: 0, seed: 1n },
        { vocabSize: model.vocabSize, rowDtype: model.activationLaw.startsWith('bf16') ? 'bf16' : 'f32' },
      ),
    maxParallel: 1,
    maxQueue: 8,
    prefillChunk,
  });
}

/** Generates `tokens` tokens after `prompt`, whatever they are. @throws what the generation throws */
export async function runTokens(
  scheduler: Scheduler,
  prompt: readonly number[],
  tokens: number,
  signal?: AbortSignal,
): Promise<GenerationUsage> {
  const request: GenerationRequest = {
    requestId: 'bench',
    promptTokens: prompt,
    maxTokens: tokens,
    sampling: {},
    text: SILENT,
    stopTokenIds: [],
    signal,
  };
  for await (const event of scheduler.submit(request)) {
    if (event.type === 'finish') return event.usage;
  }
  throw new PlumblineError('internal_error', 'a generation ended without a finish event');
}

/** A prompt of `length` ids that look like no pattern, the same every time. */
export function promptOf(length: number, vocabSize: number, seed = 1): number[] {
  let state = seed >>> 0;
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabSize);
  });
}
