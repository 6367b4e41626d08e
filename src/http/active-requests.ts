/**
 * The generations that run now, each with one abort signal that three parties can pull: the client by going away, the
 * stream by losing its reader, the server by stopping.
 *
 * Invariant: the reason of an abort is the PlumblineError that the request ends with.
 */
import { PlumblineError } from '../errors.js';

export interface ActiveRequest {
  readonly signal: AbortSignal;
  abort(reason: PlumblineError): void;
  /** To be called exactly once, when the answer has ended in whichever way. */
  readonly done: () => void;
}

export class ActiveRequests {
  readonly #active = new Set<AbortController>();
  readonly #idle: (() => void)[] = [];

  get size(): number {
    return this.#active.size;
  }

  /** @param clientGone the transport's own signal. */
  begin(clientGone: AbortSignal): ActiveRequest {
    const controller = new AbortController();
    const onGone = (): void => controller.abort(new PlumblineError('request_cancelled', 'the client went away'));
    clientGone.addEventListener('abort', onGone, { once: true });
    if (clientGone.aborted) onGone();
    this.#active.add(controller);
    return {
      signal: controller.signal,
      abort: (reason) => controller.abort(reason),
      done: () => {
        clientGone.removeEventListener('abort', onGone);
        this.#active.delete(controller);
        if (this.#active.size === 0) this.#idle.splice(0).forEach((resolve) => resolve());
      },
    };
  }

  abortAll(reason: PlumblineError): void {
    for (const controller of this.#active) controller.abort(reason);
  }

  /** Resolves when nothing is active; at once when nothing is. */
  async idle(): Promise<void> {
    if (this.#active.size === 0) return;
    await new Promise<void>((resolve) => this.#idle.push(resolve));
  }
}
