/** Requests, sinks and readers for tests of the scheduler. */
import { createSampler, type RequestSampler } from '../../src/sample/sampler.js';
import type { GenerationEvent, GenerationRequest, SinkStep, TextSink } from '../../src/schedule/request.js';

/** Writes ids as `<id>` one token late, as a detokenizer that waits for more bytes; stops at one id. */
export class MarkSink implements TextSink {
  #held = '';

  constructor(readonly stopId?: number) {}

  push(tokenId: number): SinkStep {
    const text = this.#held;
    if (tokenId === this.stopId) {
      this.#held = '';
      return { text, stop: `<${tokenId}>` };
    }
    this.#held = `<${tokenId}>`;
    return { text };
  }

  flush(): SinkStep {
    const text = this.#held;
    this.#held = '';
    return { text };
  }
}

let serial = 0;

export function makeRequest(more: Partial<GenerationRequest> = {}): GenerationRequest {
  return {
    requestId: `request-${serial++}`,
    promptTokens: [5, 6, 7],
    maxTokens: 4,
    sampling: { temperature: 0, seed: 7n },
    text: new MarkSink(),
    stopTokenIds: [],
    ...more,
  };
}

/** The sampler of a request, with the wishes that it has and greedy otherwise. */
export function samplerOf({ sampling, topLogprobs }: GenerationRequest, vocabSize = 64): RequestSampler {
  const { temperature = 0, topP = 1, topK = 0, presencePenalty = 0, frequencyPenalty = 0, seed = 7n } = sampling;
  return createSampler(
    'mtplx',
    { temperature, topP, topK, presencePenalty, frequencyPenalty, seed },
    { vocabSize, topLogprobs },
  );
}

export interface Outcome {
  readonly events: GenerationEvent[];
  readonly error?: unknown;
}

/** Reads a request to its end; what it throws is part of the outcome. */
export async function outcomeOf(events: AsyncIterable<GenerationEvent>): Promise<Outcome> {
  const read: GenerationEvent[] = [];
  try {
    for await (const event of events) read.push(event);
    return { events: read };
  } catch (error) {
    return { events: read, error };
  }
}

export const idsOf = (events: readonly GenerationEvent[]): number[] =>
  events.flatMap((event) => (event.type === 'token' ? [event.tokenId] : []));

export const textOf = (events: readonly GenerationEvent[]): string =>
  events.map((event) => (event.type === 'prefill' ? '' : event.text)).join('');

/** What an outcome says but for its times. */
export const answerOf = ({ events, error }: Outcome): unknown => ({
  tokens: events.filter((event) => event.type === 'token'),
  finish: events.flatMap((event) =>
    event.type === 'finish' ? [{ ...event, usage: { ...event.usage, prefillMs: 0, decodeMs: 0 } }] : [],
  ),
  error,
});
