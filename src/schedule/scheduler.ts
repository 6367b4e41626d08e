/**
 * Admission, queue and batching: which request gets the next forward.
 *
 * Invariants: one forward runs at a time. First come, first admitted, at most `maxParallel` at once. In each turn one
 * prompt chunk of one prefilling request runs, taken in rotation, and then one piece of work of every decoding request,
 * those of one kind together, so no prompt, however long, holds up the tokens of the others for more than a chunk. Since rows do not depend
 * on their neighbours, none of this changes a bit of an answer. Between forwards the event loop runs.
 */
import { setImmediate as nextTurn, setTimeout as elapsed } from 'node:timers/promises';
import { PlumblineError, toPlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { AutoregressiveSequence } from '../generate/autoregressive.js';
import { workGroup } from '../generate/run-work.js';
import type { TokenSequence } from '../generate/sequence.js';
import type { RequestSampler } from '../sample/sampler.js';
import { forwardTogether } from './forward-together.js';
import { Job, LONGEST_TIMEOUT_MS } from './job.js';
import type { GenerationEvent, GenerationRequest } from './request.js';
import type { TurnKeeper, TurnStart } from './turn-keeper.js';
import { Counters, type SchedulerMode, type SchedulerStats } from './stats.js';

export interface SchedulerOptions {
  readonly model: LanguageModel;
  /** The sampler of a request; called by `submit`, so that what it refuses is refused before anything is queued. */
  readonly createSampler: (request: GenerationRequest) => RequestSampler;
  /** The loop that a request follows; default: plain decoding. */
  readonly createSequence?: SequenceFactory | undefined;
  /** Keeps the sessions of requests; default: nothing is kept. */
  readonly sessions?: TurnKeeper | undefined;
  /** Most requests with a state at once, at least 1; default 1. */
  readonly maxParallel?: number | undefined;
  /** Most requests that wait beside them; default 64. */
  readonly maxQueue?: number | undefined;
  /** Prompt tokens in one forward; default that of the loop. */
  readonly prefillChunk?: number | undefined;
  /** Milliseconds of a clock that never goes back; default the process's. */
  readonly now?: (() => number) | undefined;
}

/** Makes the sequence of a request when it is admitted; the model's state is taken then, not before. */
export type SequenceFactory = (
  model: LanguageModel,
  request: GenerationRequest,
  sampler: RequestSampler,
  prefillChunk: number | undefined,
  turn: TurnStart,
) => TokenSequence;

/** Plain decoding: one token a forward. */
export const plainSequence: SequenceFactory = (model, request, sampler, prefillChunk, { start, ...boundaries }) =>
  new AutoregressiveSequence(start ?? model.newState(), {
    promptTokens: request.promptTokens,
    maxTokens: request.maxTokens,
    stopTokenIds: request.stopTokenIds,
    sampler,
    prefillChunk,
    ...boundaries,
  });

export interface ShutdownReport {
  /** Running requests that came to their end by themselves. */
  readonly drained: number;
  /** Running requests that were given up. */
  readonly abandoned: number;
  /** Waiting requests that were sent away. */
  readonly dismissed: number;
}

const stopping = (): PlumblineError => new PlumblineError('shutting_down', 'the server is stopping');

export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #maxParallel: number;
  readonly #maxQueue: number;
  readonly #counters = new Counters();
  readonly #queue = new Set<Job>();
  /** In rotation: the request that had the last prompt chunk stands behind the others. */
  readonly #running = new Set<Job>();
  #mode: SchedulerMode = 'accepting';
  #brokenBy: PlumblineError | undefined;
  /** The loop, while there is anything to do. Never rejects. */
  #loop: Promise<void> | undefined;
  /** What running jobs wait for: reads of checkpoints, containments. */
  readonly #waits = new Set<Promise<void>>();
  #wake: () => void = () => undefined;
  #shutdown: Promise<ShutdownReport> | undefined;

  /** Throws `invalid_option`. */
  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#maxParallel = integerFrom(1, 'maxParallel', options.maxParallel ?? 1);
    this.#maxQueue = integerFrom(0, 'maxQueue', options.maxQueue ?? 64);
    if (options.prefillChunk !== undefined) integerFrom(1, 'prefillChunk', options.prefillChunk);
  }

  /**
   * Takes a request. The iteration gives its events; leaving it cancels the request, and what fails it is thrown there.
   * @throws at once `queue_full`, `shutting_down`, `backend_failed`, `invalid_request`, `context_length_exceeded`, and
   * what the sampler refuses: the request was not taken.
   */
  submit(request: GenerationRequest): AsyncIterable<GenerationEvent> {
    try {
      this.#admissible(request);
      const sampler = this.#options.createSampler(request);
      const { createSequence = plainSequence, prefillChunk, sessions } = this.#options;
      const turn = sessions?.begin(request, sampler);
      const job = new Job(request, {
        startSequence: (model, signal) => {
          const make = (start: TurnStart): TokenSequence =>
            createSequence(model, request, sampler, prefillChunk, start);
          return turn ? turn.start(make, signal) : make({});
        },
        closes: turn !== undefined,
        sessionReport: () => turn?.report(),
        contain: turn && ((failure) => turn.contain(failure)),
        onWait: (waiting) => this.#waitFor(waiting),
        seed: sampler.seed,
        randomState: () => sampler.randomState,
        logitsWarning: () => sampler.warning,
        now: this.#options.now ?? (() => performance.now()),
        onEnd: (ended) => {
          turn?.end();
          this.#ended(ended);
        },
      });
      this.#counters.submitted();
      this.#queue.add(job);
      if (request.signal?.aborted === true) job.cancel();
      this.#loop ??= this.#run();
      this.#wake();
      return job.events;
    } catch (thrown) {
      const error = toPlumblineError(thrown);
      this.#counters.refused(error.code);
      throw error;
    }
  }

  stats(): SchedulerStats {
    const prefilling = [...this.#running].filter((job) => job.state.phase === 'prefilling').length;
    return {
      mode: this.#mode,
      queued: this.#queue.size,
      running: this.#running.size,
      prefilling,
      decoding: this.#running.size - prefilling,
      ...this.#counters.snapshot(),
    };
  }

  /**
   * Takes nothing new, sends the waiting requests away (`shutting_down`), lets the running ones go on for `drainMs`, then
   * gives them up with the same error. Resolves when no forward runs any more. A second call changes nothing.
   */
  shutdown({ drainMs }: { readonly drainMs: number }): Promise<ShutdownReport> {
    return (this.#shutdown ??= this.#stop(drainMs));
  }

  async #stop(drainMs: number): Promise<ShutdownReport> {
    if (this.#mode === 'accepting') this.#mode = 'draining';
    const dismissed = this.#queue.size;
    for (const job of [...this.#queue]) job.fail(stopping());
    const finishedBefore = this.#counters.totals.finished;
    await this.#loopOrAfter(drainMs);
    const drained = this.#counters.totals.finished - finishedBefore;
    const abandoned = this.#running.size;
    for (const job of [...this.#running]) job.fail(stopping());
    await this.#loop;
    if (this.#mode === 'draining') this.#mode = 'stopped';
    return { drained, abandoned, dismissed };
  }

  async #loopOrAfter(ms: number): Promise<void> {
    const timer = new AbortController();
    // The race takes the timer's rejection, which comes only after the race is decided.
    await Promise.race([this.#loop, elapsed(Math.min(ms, LONGEST_TIMEOUT_MS), undefined, { signal: timer.signal })]);
    timer.abort();
  }

  #admissible({ promptTokens, maxTokens }: GenerationRequest): void {
    if (this.#brokenBy !== undefined) {
      throw new PlumblineError(
        this.#brokenBy.code,
        'the backend failed earlier and its state cannot be trusted; restart the server',
        { cause: this.#brokenBy },
      );
    }
    if (this.#mode !== 'accepting') throw stopping();
    const { vocabSize, contextLength } = this.#options.model;
    if (promptTokens.length === 0) throw new PlumblineError('invalid_request', 'the prompt has no tokens');
    if (!Number.isInteger(maxTokens) || maxTokens < 1)
      throw new PlumblineError('invalid_request', 'at least one token must be asked for');
    const outside = promptTokens.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
    if (outside !== undefined)
      throw new PlumblineError('invalid_request', `the prompt has the id ${outside}, the vocabulary ${vocabSize} ids`);
    if (promptTokens.length + maxTokens > contextLength) {
      throw new PlumblineError(
        'context_length_exceeded',
        `a prompt of ${promptTokens.length} tokens and ${maxTokens} more do not fit the context of ${contextLength}`,
      );
    }
    if (this.#queue.size + this.#running.size >= this.#maxParallel + this.#maxQueue) {
      throw new PlumblineError('queue_full', `${this.#queue.size} requests are waiting already; retry later`);
    }
  }

  #ended(job: Job): void {
    this.#queue.delete(job);
    this.#running.delete(job);
    this.#counters.ended(job);
    this.#wake();
  }

  /** A job cannot go on before this has settled, and the loop does not end before. */
  #waitFor(waiting: Promise<void>): void {
    const over = waiting.finally(() => {
      this.#waits.delete(over);
      this.#wake();
    });
    this.#waits.add(over);
  }

  async #run(): Promise<void> {
    try {
      do {
        await nextTurn();
        this.#admit();
        const prompts = await this.#forwardPrompt();
        const decoded = await this.#forwardDecode();
        if (prompts + decoded === 0 && this.#waits.size > 0) await this.#woken();
      } while (this.#queue.size + this.#running.size + this.#waits.size > 0);
    } catch (thrown) {
      this.#break(toPlumblineError(thrown));
    } finally {
      this.#loop = undefined;
    }
  }

  async #woken(): Promise<void> {
    await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#wake = () => undefined;
  }

  #admit(): void {
    for (const job of this.#queue) {
      if (this.#running.size >= this.#maxParallel) return;
      this.#queue.delete(job);
      this.#running.add(job);
      job.start(this.#options.model);
    }
  }

  /** @returns how many jobs had a forward */
  async #forwardPrompt(): Promise<number> {
    for (const job of this.#running) {
      if (job.state.phase !== 'prefilling' || job.nextWork === undefined) continue;
      this.#running.delete(job);
      this.#running.add(job);
      await forwardTogether(this.#options.model, [job]);
      return 1;
    }
    return 0;
  }

  /** @returns how many jobs had work */
  async #forwardDecode(): Promise<number> {
    const groups = new Map<string, Job[]>();
    for (const job of this.#running) {
      if (job.state.phase !== 'decoding' || job.nextWork === undefined) continue;
      const group = workGroup(job.nextWork);
      groups.set(group, [...(groups.get(group) ?? []), job]);
    }
    for (const jobs of groups.values()) {
      const waiting = jobs.filter((job) => job.state.phase === 'decoding'); // one may have ended meanwhile
      if (waiting.length > 0) await forwardTogether(this.#options.model, waiting);
    }
    return groups.size;
  }

  /** The process is poisoned, or this module is wrong: every request ends, and no other is taken. */
  #break(error: PlumblineError): void {
    this.#mode = 'broken';
    this.#brokenBy = error;
    for (const job of [...this.#queue, ...this.#running]) job.fail(error);
  }
}

function integerFrom(least: number, name: string, value: number): number {
  if (Number.isInteger(value) && value >= least) return value;
  throw new PlumblineError('invalid_option', `${name} is ${value}; it must be an integer of at least ${least}`);
}
