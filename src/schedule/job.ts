/**
 * One request from submission to its end: its state, its sequence, its events, its deadline and its cancellation.
 *
 * Invariants: the job ends once, whatever ends it first, and its consumer hears of it at once; its sequence is released
 * once, after the end and never while a forward reads it; tokens are counted, pushed through the text sink and emitted in
 * the order in which they were made. Where turns are closed, the end is told only when the closing forward has passed.
 * A job whose row of logits was invalid gives its states back at once and is told to its consumer when its session has been
 * contained, not before.
 */
import { NonFiniteLogitsError, PlumblineError, toPlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { releaseResult, type Step, type TokenSequence, type Work, type WorkResult } from '../generate/sequence.js';
import type { LogitsWarning } from '../sample/row-watch.js';
import { EventQueue } from './event-queue.js';
import type { FinishReason, GenerationRequest, GenerationUsage, SessionReport } from './request.js';
import { isFinal, transition, type RequestState } from './request-state.js';

export interface JobOptions {
  /** Makes the sequence when the job leaves the queue; may first read what it begins with. */
  readonly startSequence: (model: LanguageModel, signal: AbortSignal) => TokenSequence | Promise<TokenSequence>;
  /** Whether sequences are closed: the end is told behind the `closed` step. Default false. */
  readonly closes?: boolean | undefined;
  /** What the job's session came to; asked when the job ends well. */
  readonly sessionReport?: (() => SessionReport | undefined) | undefined;
  /** Drops what an invalid row may have spoiled; the consumer is told when it resolves. Never rejects. */
  readonly contain?: ((failure: ContainableFailure) => Promise<void>) | undefined;
  /** Told of everything that must be over before the model may be closed; the job may have work again then. */
  readonly onWait?: ((waiting: Promise<void>) => void) | undefined;
  /** The seed that its sampler draws with. */
  readonly seed: bigint;
  /** The state of its sampler's generator, where another request can go on from it. */
  readonly randomState?: (() => bigint | undefined) | undefined;
  /** What its sampler saw of rows that another law refuses. */
  readonly logitsWarning: () => LogitsWarning | undefined;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
  /** Called once, when the job has ended. */
  readonly onEnd: (job: Job) => void;
}

/** How an answer ends, before it is told. */
interface Ending {
  readonly reason: FinishReason;
  readonly stopMatch?: string | number | undefined;
  /** Held-back text that turned out to be part of the answer. */
  readonly text: string;
}

/** An invalid row, and how far its request had come. */
export interface ContainableFailure {
  readonly error: NonFiniteLogitsError;
  readonly emittedTokens: number;
  /** Prompt tokens whose state was reused. */
  readonly cachedTokens: number;
}

/** A timer cannot wait longer; it would fire at once. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

export class Job {
  readonly request: GenerationRequest;
  readonly events: EventQueue;
  readonly #options: JobOptions;
  #state: RequestState = { phase: 'queued' };
  #sequence: TokenSequence | undefined;
  #completionTokens = 0;
  /** When the last token was made; the closing forward is not decoding. */
  #decodedAt: number | undefined;
  /** While a forward of the job runs: called when the job ends, so that the forward can be given up. */
  #onEndInFlight: (() => void) | undefined;
  #deadline: NodeJS.Timeout | undefined;
  /** Aborted when the job ends while its sequence is still being made. */
  readonly #starting = new AbortController();
  /** The end that is told when the turn is closed. */
  #ending: Ending | undefined;
  /** An invalid row: the job waits for its session to be contained. */
  #invalidRow: NonFiniteLogitsError | undefined;
  readonly #onAbort = (): void => this.cancel();

  constructor(request: GenerationRequest, options: JobOptions) {
    this.request = request;
    this.#options = options;
    this.events = new EventQueue(() => this.cancel());
    request.signal?.addEventListener('abort', this.#onAbort, { once: true });
    if (request.timeoutMs !== undefined) this.#startDeadline(request.timeoutMs);
  }

  get state(): RequestState {
    return this.#state;
  }

  get completionTokens(): number {
    return this.#completionTokens;
  }

  /** Leaves the queue: makes the sequence. Ends the job when the model has no state for it. */
  start(model: LanguageModel): void {
    this.#move({ phase: 'prefilling', startedAt: this.#options.now() });
    this.#guard(() => {
      const sequence = this.#options.startSequence(model, this.#starting.signal);
      if (sequence instanceof Promise) this.#wait(this.#startLater(sequence));
      else this.#sequence = sequence;
    });
  }

  async #startLater(making: Promise<TokenSequence>): Promise<void> {
    try {
      const sequence = await making;
      if (isFinal(this.#state)) sequence.release();
      else this.#sequence = sequence;
    } catch (thrown) {
      this.fail(toPlumblineError(thrown));
    }
  }

  #wait(waiting: Promise<void>): void {
    this.#options.onWait?.(waiting);
  }

  /** The work that the job needs next, without beginning it. */
  get nextWork(): Work | undefined {
    return this.#invalidRow === undefined ? this.#sequence?.work : undefined;
  }

  /**
   * The forward that the job needs next. Until `endForward` the job's states stay alive.
   * @param onEnd called when the job ends before its forward does.
   */
  beginForward(onEnd: () => void): Work {
    const work = this.nextWork;
    if (work === undefined || this.#onEndInFlight !== undefined) {
      throw new PlumblineError('internal_error', `a ${this.#state.phase} request was asked for a forward`);
    }
    this.#onEndInFlight = onEnd;
    return work;
  }

  /** The forward is over. `result` undefined: it made nothing, and the job goes on unless it has ended. */
  endForward(result?: WorkResult): void {
    this.#onEndInFlight = undefined;
    if (isFinal(this.#state)) {
      if (result !== undefined) releaseResult(result);
      this.#sequence?.release();
    } else if (result !== undefined) {
      this.#guard(() => {
        for (const step of this.#sequence?.take(result) ?? []) {
          if (isFinal(this.#state)) break; // a stop string ended the answer inside this step
          this.#take(step);
        }
      });
    }
  }

  /** Ends the job with an error; its consumer reads the events before it first. Nothing happens to an ended job. */
  fail(error: PlumblineError): void {
    if (isFinal(this.#state)) return;
    // Nothing tells the consumer of an invalid row before its session is contained, not even a deadline.
    if (this.#invalidRow !== undefined && this.#invalidRow !== error) return;
    this.#move({ phase: 'failed', error });
    this.events.fail(error);
  }

  /** Ends the job because nobody waits for it any more. Nothing happens to an ended job. */
  cancel(): void {
    const { phase } = this.#state;
    if (phase !== 'queued' && phase !== 'prefilling' && phase !== 'decoding') return;
    this.#move({ phase: 'cancelled', during: phase });
    this.events.drop(new PlumblineError('request_cancelled', 'the client went away or cancelled the request'));
  }

  #take(step: Step): void {
    switch (step.kind) {
      case 'prompt':
        this.events.push({ type: 'prefill', processed: step.processed, total: step.total });
        return;
      case 'token': {
        if (this.#state.phase === 'prefilling') {
          const total = this.request.promptTokens.length;
          this.events.push({ type: 'prefill', processed: total, total });
          this.#move({ phase: 'decoding', startedAt: this.#state.startedAt, firstTokenAt: this.#options.now() });
        }
        this.#completionTokens++;
        const { tokenId, logprob, topLogprobs } = step.token;
        if (step.end === 'stop-token') {
          this.#end('stop', tokenId);
          return;
        }
        const { text, stop } = this.request.text.push(tokenId);
        this.events.push({ type: 'token', tokenId, text, logprob, topLogprobs });
        // What stands behind a stop string was never part of the answer: such a turn is not closed.
        if (stop !== undefined) this.#finish(this.#endingOf('stop', stop));
        else if (this.#completionTokens >= (this.request.guide?.completedAt ?? Infinity)) {
          this.#sequence?.stop();
          this.#end('stop');
        } else if (step.end === 'length') this.#end('length');
        return;
      }
      case 'closed':
        if (this.#ending !== undefined) this.#finish(this.#ending);
        return;
    }
  }

  /** The last token was made. A turn that is closed waits for that, unless a stop string cut it. */
  #end(reason: FinishReason, stopMatch?: string | number): void {
    const ending = this.#endingOf(reason, stopMatch);
    this.#decodedAt = this.#options.now();
    if (this.#options.closes === true && typeof ending.stopMatch !== 'string') this.#ending = ending;
    else this.#finish(ending);
  }

  #endingOf(reason: FinishReason, stopMatch?: string | number): Ending {
    const { text, stop } = this.request.text.flush();
    // A character cut off by the end can still complete a stop string.
    return stop === undefined ? { reason, stopMatch, text } : { reason: 'stop', stopMatch: stop, text };
  }

  #finish(ending: Ending): void {
    const usage = this.#usage();
    this.#move({ phase: 'finished', reason: ending.reason });
    this.events.push({ type: 'finish', ...ending, usage });
    this.events.close();
  }

  #usage(): GenerationUsage {
    const state = this.#state;
    if (state.phase !== 'decoding') throw new PlumblineError('internal_error', `a ${state.phase} request has no usage`);
    const speculation = this.#sequence?.speculation;
    const session = this.#options.sessionReport?.();
    const logitsWarning = this.#options.logitsWarning();
    const randomState = this.#options.randomState?.();
    return {
      promptTokens: this.request.promptTokens.length,
      completionTokens: this.completionTokens,
      cachedTokens: this.#sequence?.cachedTokens ?? 0,
      prefillMs: state.firstTokenAt - state.startedAt,
      decodeMs: (this.#decodedAt ?? this.#options.now()) - state.firstTokenAt,
      seed: this.#options.seed,
      ...(randomState !== undefined && { randomState }),
      ...(speculation && { speculation }),
      ...(session && { session }),
      ...(logitsWarning && { logitsWarning }),
    };
  }

  /** Runs a piece of the job; what it throws ends this job and no other. */
  #guard(piece: () => void): void {
    try {
      piece();
    } catch (thrown) {
      const { contain } = this.#options;
      if (thrown instanceof NonFiniteLogitsError && contain !== undefined && !isFinal(this.#state))
        this.#contain(thrown, contain);
      else this.fail(toPlumblineError(thrown));
    }
  }

  /** The states go before anything else is done; what the session keeps elsewhere goes while the consumer waits. */
  #contain(error: NonFiniteLogitsError, contain: (failure: ContainableFailure) => Promise<void>): void {
    this.#invalidRow = error;
    const cachedTokens = this.#sequence?.cachedTokens ?? 0;
    this.#sequence?.release();
    const contained = contain({ error, emittedTokens: this.#completionTokens, cachedTokens });
    this.#wait(contained.then(() => this.fail(error)));
  }

  #move(to: RequestState): void {
    this.#state = transition(this.#state, to);
    if (!isFinal(this.#state)) return;
    clearTimeout(this.#deadline);
    this.#starting.abort(new PlumblineError('request_cancelled', 'the request has ended'));
    this.request.signal?.removeEventListener('abort', this.#onAbort);
    if (this.#onEndInFlight === undefined) this.#sequence?.release();
    else this.#onEndInFlight();
    this.#options.onEnd(this);
  }

  #startDeadline(timeoutMs: number): void {
    const expire = (): void => {
      this.fail(new PlumblineError('deadline_exceeded', `the request ran longer than its deadline of ${timeoutMs} ms`));
    };
    this.#deadline = setTimeout(expire, Math.min(timeoutMs, LONGEST_TIMEOUT_MS));
  }
}
