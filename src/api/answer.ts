/**
 * From generation events to an answer on the wire, whatever the dialect: the chunks of a stream as they come, and the
 * whole body at the end. Both are made from the same steps, so a streamed answer and one in one piece say the same.
 */
import type { GenerationEvent, GenerationRequest } from '../schedule/request.js';
import type { ServedModel } from './served-model.js';

export type TokenEvent = Extract<GenerationEvent, { type: 'token' }>;
export type FinishEvent = Extract<GenerationEvent, { type: 'finish' }>;

/** Called in order: `begin`, `token`*, `end`, then `body`. A failed generation never reaches `end`. */
export interface Answer {
  /** Chunks that go out as soon as the stream is open. */
  begin(): readonly unknown[];
  token(event: TokenEvent): readonly unknown[];
  /**
   * Another pass that the answer needs behind a finished one, in place of what came so far; asked once, before `end`, where
   * nothing was given out yet.
   */
  again?(event: FinishEvent): GenerationRequest | undefined;
  /** The last chunks: text that was held back, the finish reason, the usage. */
  end(event: FinishEvent): readonly unknown[];
  /** The answer in one piece. */
  body(): unknown;
}

/** A request that passed every check that can be made before it runs. */
export interface PreparedGeneration {
  readonly model: ServedModel;
  readonly request: GenerationRequest;
  readonly stream: boolean;
  readonly answer: Answer;
}

/** What the transport knows of a request. */
export interface RequestContext {
  readonly requestId: string;
  /** Value of `x-session-id`. */
  readonly sessionId?: string | undefined;
  /** Aborted when the client goes away or the server stops. */
  readonly signal: AbortSignal;
  /** Served models by id. */
  readonly models: readonly ServedModel[];
  /** Unix time in milliseconds. */
  readonly now: number;
}
