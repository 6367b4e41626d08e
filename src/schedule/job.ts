/**
 * One request from submission to its end: its state, its sequence, its events, its deadline and its cancellation.
 *
 * Invariants: the job ends once, whatever ends it first, and its consumer hears of it at once; its sequence is released
 * once, after the end and never while a forward reads it; tokens are counted, pushed through the text sink and emitted in
 * the order in which they were made.
 */
import { PlumblineError, toPlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { releaseResult, type Step, type TokenSequence, type Work, type WorkResult } from '../generate/sequence.js';
import type { LogitsWarning } from '../sample/row-watch.js';
import { EventQueue } from './event-queue.js';
import type { FinishReason, GenerationRequest, GenerationUsage } from './request.js';
import { isFinal, transition, type RequestState } from './request-state.js';

export interface JobOptions {
  /** Makes the sequence when the job leaves the queue. */
  readonly startSequence: (model: LanguageModel) => TokenSequence;
  /** The seed that its sampler draws with. */
  readonly seed: bigint;
  /** What its sampler saw of rows that another law refuses. */
  readonly logitsWarning: () => LogitsWarning | undefined;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
  /** Called once, when the job has ended. */
  readonly onEnd: (job: Job) => void;
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
  /** While a forward of the job runs: called when the job ends, so that the forward can be given up. */
  #onEndInFlight: (() => void) | undefined;
  #deadline: NodeJS.Timeout | undefined;
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
      this.#sequence = this.#options.startSequence(model);
    });
  }

  /** The work that the job needs next, without beginning it. */
  get nextWork(): Work | undefined {
    return this.#sequence?.work;
  }

  /**
   * The forward that the job needs next. Until `endForward` the job's states stay alive.
   * @param onEnd called when the job ends before its forward does.
   */
  beginForward(onEnd: () => void): Work {
    const work = this.#sequence?.work;
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
          this.#finish('stop', tokenId);
          return;
        }
        const { text, stop } = this.request.text.push(tokenId);
        this.events.push({ type: 'token', tokenId, text, logprob, topLogprobs });
        const completedAt = this.request.guide?.completedAt ?? Infinity;
        if (stop !== undefined) this.#finish('stop', stop);
        else if (this.#completionTokens >= completedAt) this.#finish('stop');
        else if (step.end === 'length') this.#finish('length');
        return;
      }
      case 'closed':
        return;
    }
  }

  #finish(reason: FinishReason, stopMatch?: string | number): void {
    const { text, stop } = this.request.text.flush();
    const usage = this.#usage();
    // A character cut off by the end can still complete a stop string.
    const last = stop === undefined ? { reason, stopMatch } : { reason: 'stop' as const, stopMatch: stop };
    this.#move({ phase: 'finished', reason: last.reason });
    this.events.push({ type: 'finish', ...last, text, usage });
    this.events.close();
  }

  #usage(): GenerationUsage {
    const state = this.#state;
    if (state.phase !== 'decoding') throw new PlumblineError('internal_error', `a ${state.phase} request has no usage`);
    const speculation = this.#sequence?.speculation;
    const logitsWarning = this.#options.logitsWarning();
    return {
      promptTokens: this.request.promptTokens.length,
      completionTokens: this.completionTokens,
      cachedTokens: this.#sequence?.cachedTokens ?? 0,
      prefillMs: state.firstTokenAt - state.startedAt,
      decodeMs: this.#options.now() - state.firstTokenAt,
      seed: this.#options.seed,
      ...(speculation && { speculation }),
      ...(logitsWarning && { logitsWarning }),
    };
  }

  /** Runs a piece of the job; what it throws ends this job and no other. */
  #guard(piece: () => void): void {
    try {
      piece();
    } catch (thrown) {
      this.fail(toPlumblineError(thrown));
    }
  }

  #move(to: RequestState): void {
    this.#state = transition(this.#state, to);
    if (!isFinal(this.#state)) return;
    clearTimeout(this.#deadline);
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
