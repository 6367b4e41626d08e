/**
 * The events of one request on their way to one consumer.
 *
 * Invariants: events come in order, then the end or the error, once; a consumer that leaves early is reported, once. The
 * queue never blocks the producer: what a slow consumer leaves unread is at most one prefill event beside the events of
 * the request's own tokens, because a newer prefill event replaces an unread one.
 */
import type { GenerationEvent } from './request.js';

type Result = IteratorResult<GenerationEvent, undefined>;
interface Waiter {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}
type End = { readonly kind: 'done' } | { readonly kind: 'error'; readonly error: unknown };

const DONE: Result = { done: true, value: undefined };

export class EventQueue implements AsyncIterableIterator<GenerationEvent, undefined> {
  readonly #unread: GenerationEvent[] = [];
  readonly #waiting: Waiter[] = [];
  readonly #onLeave: () => void;
  #end: End | undefined;

  /** @param onLeave called when the consumer leaves before the end. */
  constructor(onLeave: () => void) {
    this.#onLeave = onLeave;
  }

  /** Events that nobody has read yet. */
  get length(): number {
    return this.#unread.length;
  }

  /** Ignored behind the end. */
  push(event: GenerationEvent): void {
    if (this.#end !== undefined) return;
    const waiter = this.#waiting.shift();
    if (waiter !== undefined) waiter.resolve({ done: false, value: event });
    else if (event.type === 'prefill' && this.#unread.at(-1)?.type === 'prefill')
      this.#unread[this.#unread.length - 1] = event;
    else this.#unread.push(event);
  }

  /** No more events: the consumer reads what is there, then the end. */
  close(): void {
    this.#finish({ kind: 'done' });
  }

  /** The consumer reads what is there, then the error. */
  fail(error: unknown): void {
    this.#finish({ kind: 'error', error });
  }

  /** As `fail`, but what is unread is dropped: nobody wants it any more. */
  drop(error: unknown): void {
    this.#unread.length = 0;
    this.fail(error);
  }

  #finish(end: End): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    const [first, ...others] = this.#waiting.splice(0);
    if (first === undefined) return;
    this.#settle(first);
    for (const waiter of others) waiter.resolve(DONE);
  }

  /** Gives the end to a reader; an error is given once, afterwards the iteration is over. */
  #settle(waiter: Waiter): void {
    const end = this.#end;
    this.#end = { kind: 'done' };
    if (end?.kind === 'error') waiter.reject(end.error);
    else waiter.resolve(DONE);
  }

  next(): Promise<Result> {
    const event = this.#unread.shift();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    return new Promise((resolve, reject) => {
      if (this.#end === undefined) this.#waiting.push({ resolve, reject });
      else this.#settle({ resolve, reject });
    });
  }

  return(): Promise<Result> {
    this.#unread.length = 0;
    const early = this.#end === undefined;
    this.close();
    if (early) this.#onLeave();
    return Promise.resolve(DONE);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
