/**
 * A served model without an engine, for tests of the wire formats: it answers with a script of events. Its "tokens" are
 * single characters: id = code unit, ids below 128 only.
 */
import type { ConversationFormat, ServedModel } from '../../src/api/served-model.js';
import { PlumblineError } from '../../src/errors.js';
import { samplingRules } from '../../src/sample/sampler.js';
import type { GenerationEvent, GenerationRequest, GenerationUsage, TextSink } from '../../src/schedule/request.js';

export type Script = (request: GenerationRequest) => AsyncIterable<GenerationEvent>;

export interface FakeModel extends ServedModel {
  /** Every request that was submitted, in order. */
  readonly submitted: GenerationRequest[];
  /** What the next requests do. */
  script: Script;
  /** Set: submit throws it. */
  refusal: PlumblineError | undefined;
}

export function usageOf(request: GenerationRequest, completionTokens: number): GenerationUsage {
  return {
    promptTokens: request.promptTokens.length,
    completionTokens,
    cachedTokens: 0,
    prefillMs: 2,
    decodeMs: 4,
    seed: request.sampling.seed ?? 7n,
  };
}

/** Says `pieces`, one token each, then finishes. */
export function says(
  pieces: readonly string[],
  reason: 'stop' | 'length' = 'stop',
  before?: (index: number) => Promise<void>,
): Script {
  return async function* (request) {
    yield { type: 'prefill', processed: request.promptTokens.length, total: request.promptTokens.length };
    for (const [index, text] of pieces.entries()) {
      await before?.(index);
      request.signal?.throwIfAborted();
      const tokenId = text.charCodeAt(0) % 128;
      const logprobs =
        request.topLogprobs === undefined
          ? {}
          : {
              logprob: { tokenId, logprob: -0.5 },
              topLogprobs: Array.from({ length: request.topLogprobs }, (_, rank) => ({
                tokenId: (tokenId + rank) % 128,
                logprob: -0.5 - rank,
              })),
            };
      yield { type: 'token', tokenId, text, ...logprobs };
    }
    yield { type: 'finish', reason, text: '', usage: usageOf(request, pieces.length) };
  };
}

/** Waits until the request is aborted. */
export async function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  await new Promise<void>((resolve) => {
    if (signal?.aborted === true) resolve();
    signal?.addEventListener('abort', () => resolve(), { once: true });
  });
  throw signal?.reason;
}

const encode = (text: string): number[] => Array.from(text, (character) => character.charCodeAt(0) % 128);

/** Roles and contents in plain text; reasoning between `<t>` marks is not parsed: everything is content. */
const plainChat: ConversationFormat = {
  prepare({ turns, templateArguments }) {
    if (templateArguments['refuse'] === true) throw new PlumblineError('chat_template_error', 'the template said no');
    const prompt = turns.map((turn) => `${turn.role}:${turn.content ?? ''}\n`).join('');
    return {
      promptTokens: encode(`${prompt}assistant:`),
      reader: { push: (text) => (text === '' ? [] : [{ kind: 'content', text }]), finish: () => [] },
    };
  },
};

export function fakeModel(overrides: Partial<ServedModel> = {}): FakeModel {
  const submitted: GenerationRequest[] = [];
  const sink: TextSink = { push: (id) => ({ text: String.fromCharCode(id) }), flush: () => ({ text: '' }) };
  const fake: FakeModel = {
    id: 'fake',
    family: 'fake-family',
    createdAt: 1_700_000_000,
    vocabSize: 128,
    contextLength: 4096,
    defaultMaxTokens: undefined,
    timeoutMs: undefined,
    samplingRules: samplingRules('mtplx'),
    stopTokenIds: [0],
    build: { version: '0.0.0', backend: 'reference', activationLaw: 'f32' },
    encode,
    tokenBytes: (id) => (id < 128 ? Uint8Array.of(id) : undefined),
    textSink: () => sink,
    chat: plainChat,
    ...overrides,
    submitted,
    script: says(['Hel', 'lo', '!']),
    refusal: undefined,
    submit(request) {
      if (fake.refusal !== undefined) throw fake.refusal;
      submitted.push(request);
      return fake.script(request);
    },
  };
  return fake;
}
