/**
 * The typed request and the events between the wire (api/, http/) and the scheduler. JSON never passes this line.
 *
 * The scheduler works on token ids alone: text (detokenising, stop strings) is made by the request's own `TextSink`,
 * which tokens/ implements (`new TextAssembler(...)`), so that this room needs no tokenizer.
 */
import type { LogitsCensus } from '../errors.js';
import type { SpeculationReport } from '../generate/sequence.js';
import type { LogitsWarning } from '../sample/row-watch.js';
import type { SamplingGuide } from '../sample/sampler.js';
import type { AcceptanceLaw } from '../sample/speculation.js';
import type { MatchedBy } from '../sessions/text-prefixes.js';
import type { RestoreReason } from '../sessions/types.js';

/** Sampling fields that a request may leave open; `undefined` takes the next default in line. */
export interface SamplingOptions {
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  readonly topK?: number | undefined;
  readonly minP?: number | undefined;
  readonly presencePenalty?: number | undefined;
  readonly frequencyPenalty?: number | undefined;
  /** Non-negative integer below 2^64; bigint so that no digit is lost. */
  readonly seed?: bigint | undefined;
}

/** What a sink made of one token. */
export interface SinkStep {
  /** Text that became certain with this token; '' while it is held back for UTF-8 or for a stop string. */
  readonly text: string;
  /** The stop string that ended the answer with this token; its own text is not in `text`. */
  readonly stop?: string | undefined;
}

/**
 * Turns the ids of one generation into text. One sink serves one request: it is pushed every completion token but the
 * stop token, in order; after a step with `stop` nothing more is pushed.
 */
export interface TextSink {
  push(tokenId: number): SinkStep;
  /** The held-back text, once no more tokens come; only a cut UTF-8 sequence (U+FFFD) can still complete a stop string. */
  flush(): SinkStep;
}

/** off: one token a forward; otherwise the acceptance law of the rounds (sample/speculation.ts). */
export type SpeculationMode = 'off' | AcceptanceLaw;

/** Which conversation a request goes on with, as far as it says so. */
export interface SessionWish {
  /** Absent: it is inferred from the prompt. */
  readonly id?: string | undefined;
  readonly source?: 'header' | 'prompt_cache_key' | undefined;
  /** So many tokens of the prompt will begin the prompts of later turns, too; absent: all of them. */
  readonly stablePrefix?: number | undefined;
  /** Earlier answers that stand in the prompt with the very tokens that were generated. */
  readonly splicedTurns?: number | undefined;
  /** Why the latest earlier answer does not. */
  readonly spliceDeclined?: string | undefined;
  /**
   * What is stored with the whole turn, so that its answer is known again after a restart. @param turnTokens prompt and
   * answer; the answer has ended @returns undefined when there is nothing to be known
   */
  readonly note?: ((turnTokens: Int32Array) => Uint8Array | undefined) | undefined;
  /** So many tokens that the prompt begins with are those of a state which was found by its text. */
  readonly prefix?: { readonly tokens: number; readonly by: Exclude<MatchedBy, 'tokens'> } | undefined;
  /** Why a state that was found by its text is not gone on from. */
  readonly textDeclined?: string | undefined;
}

/** What a request's session came to. */
export interface SessionReport {
  readonly id: string;
  readonly source: 'header' | 'prompt_cache_key' | 'inferred';
  readonly restore:
    | { readonly kind: 'restored'; readonly from: 'ram' | 'disk' }
    | { readonly kind: 'no-match' | 'rejected'; readonly reason: RestoreReason };
  readonly reusedTokens: number;
  /** What the state was known by; with one that was restored. */
  readonly matchedBy?: MatchedBy | undefined;
  readonly textDeclined?: string | undefined;
  readonly splicedTurns: number;
  readonly spliceDeclined?: string | undefined;
  /** Whether the whole turn is kept for the next one; otherwise why not. */
  readonly stored: { readonly ram: 'stored' | NotStored; readonly disk: 'queued' | NotStored };
  /** All ids of the turn, prompt and answer, when it is kept. */
  readonly turnTokens?: Int32Array | undefined;
}

/** trimmed: a stop string cut the turn. */
export type NotStored = 'off' | 'fenced' | 'no_room' | 'trimmed' | 'unusable';

/** Watches the tokens of an answer as they are chosen. */
export interface AnswerGuide extends SamplingGuide {
  /** How many tokens the answer had when it was complete without a stop token; undefined while it is not. */
  readonly completedAt?: number | undefined;
}

export interface GenerationRequest {
  readonly requestId: string;
  /** At least one id, each inside the model's vocabulary. */
  readonly promptTokens: readonly number[];
  /** Most tokens to generate; already checked against the context. */
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  /** Makes the text of the events and watches for stop strings; fresh for each request. */
  readonly text: TextSink;
  /** Token ids that end the turn (eos list of the model plus the request's). */
  readonly stopTokenIds: readonly number[];
  /** undefined: no log-probabilities; n: the chosen token's and the n most likely ones. */
  readonly topLogprobs?: number | undefined;
  /** How to speculate; undefined takes the server's default. */
  readonly speculation?: SpeculationMode | undefined;
  readonly session?: SessionWish | undefined;
  /** Whether the model reasons first; some laws have other defaults then. */
  readonly thinking?: boolean | undefined;
  /** Follows the answer for the sampler, and says when it is complete; fresh for each request. */
  readonly guide?: AnswerGuide | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds from submission, waiting included, after which the request fails with `deadline_exceeded`. */
  readonly timeoutMs?: number | undefined;
}

export interface TokenLogprob {
  readonly tokenId: number;
  /** Natural log, of the raw log-softmax of the processed row (after mask and penalties, before temperature). */
  readonly logprob: number;
}

export type FinishReason = 'stop' | 'length';

/**
 * What a generation says, in order: `prefill`*, `token`*, then exactly one `finish` or a thrown PlumblineError. Every
 * completion token has its `token` event, except a stop token: it ends the turn with `finish` and is counted in the
 * usage. `prefill` events that the consumer has not read yet are replaced by newer ones.
 */
export type GenerationEvent =
  | { readonly type: 'prefill'; readonly processed: number; readonly total: number }
  | {
      readonly type: 'token';
      readonly tokenId: number;
      /** Text that became certain with this token: may be '' (held back for UTF-8 or a stop string). */
      readonly text: string;
      readonly logprob?: TokenLogprob | undefined;
      readonly topLogprobs?: readonly TokenLogprob[] | undefined;
    }
  | {
      readonly type: 'finish';
      readonly reason: FinishReason;
      /** Held-back text that turned out to be part of the answer. */
      readonly text: string;
      /** The stop string or stop token id that ended it, if one did. */
      readonly stopMatch?: string | number | undefined;
      readonly usage: GenerationUsage;
    };

export interface GenerationUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Prompt tokens whose state was reused. */
  readonly cachedTokens: number;
  readonly prefillMs: number;
  readonly decodeMs: number;
  /** The seed that was used, so that an unseeded answer can be asked for again. */
  readonly seed: bigint;
  /** State of the generator behind the answer, under laws where it can be the seed of what goes on from there. */
  readonly randomState?: bigint | undefined;
  /** What speculation did, or why it was declined; absent when nobody asked for it. */
  readonly speculation?: SpeculationReport | undefined;
  /** Absent where no sessions are kept. */
  readonly session?: SessionReport | undefined;
  /** Rows that held NaN, +infinity or nothing finite and were made into tokens, as the family's law says. */
  readonly logitsWarning?: LogitsWarning | undefined;
}

export type { LogitsCensus };
