/**
 * Saves wait here for the one writer. Of each session and lane only the newest waits: a folder that is slower than the
 * conversations is always written with the latest of each.
 *
 * Invariants: a waiting capture's values are held, and given back once, whether it is written, replaced, refused or dropped;
 * at most `most` wait, the oldest gives way; what became of each is told once.
 */
import type { StateValue } from '../types.js';
import type { NotStoredReason, SaveOutcome } from './save.js';
import type { SaveRequest } from './save-plan.js';

interface Waiting<S extends StateValue> {
  readonly request: SaveRequest<S>;
  readonly told: (outcome: SaveOutcome) => void;
}

interface Running {
  readonly session: string;
  revoked: NotStoredReason | undefined;
}

export interface SaveJob<S extends StateValue> {
  readonly request: SaveRequest<S>;
  /** Why it must not be published any more. */
  readonly revoked: () => NotStoredReason | undefined;
}

export class SaveQueue<S extends StateValue> {
  readonly #waiting = new Map<string, Waiting<S>>();
  readonly #write: (job: SaveJob<S>) => Promise<SaveOutcome>;
  readonly #most: number;
  #running: Running | undefined;
  #idle: Promise<void> = Promise.resolve();
  #stopped = false;

  /** @param write never rejects */
  constructor(most: number, write: (job: SaveJob<S>) => Promise<SaveOutcome>) {
    this.#most = most;
    this.#write = write;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  get writing(): boolean {
    return this.#running !== undefined;
  }

  /** Takes a capture in; its values are held from here on. @param told what became of it, later or at once */
  add(request: SaveRequest<S>, told: (outcome: SaveOutcome) => void): void {
    if (this.#stopped) return told({ kind: 'not-stored', reason: 'stopped' });
    const key = JSON.stringify([request.session, request.stamp.lane]);
    request.capture.trunk.retain();
    request.capture.head?.retain();
    this.#refuse(key, 'superseded');
    if (this.#waiting.size >= this.#most) this.#refuse(this.#waiting.keys().next().value!, 'queue_full');
    this.#waiting.set(key, { request, told });
    if (this.#running === undefined) this.#idle = this.#work();
  }

  /** Lets go of what waits for these sessions, and forbids the publication of what is being written. How many there were. */
  revoke(concerned: (session: string) => boolean, reason: NotStoredReason): number {
    let count = 0;
    for (const [key, { request }] of this.#waiting) {
      if (!concerned(request.session)) continue;
      this.#refuse(key, reason);
      count++;
    }
    if (this.#running && this.#running.revoked === undefined && concerned(this.#running.session)) {
      this.#running.revoked = reason;
      count++;
    }
    return count;
  }

  /** Takes nothing more, and lets go of what waits. */
  stop(): void {
    this.#stopped = true;
    this.revoke(() => true, 'stopped');
  }

  /** Resolves when nothing waits and nothing is written. */
  async idle(): Promise<void> {
    await this.#idle;
  }

  async #work(): Promise<void> {
    for (let next = this.#waiting.entries().next(); !next.done; next = this.#waiting.entries().next()) {
      const [key, { request, told }] = next.value;
      this.#waiting.delete(key);
      const running: Running = (this.#running = { session: request.session, revoked: undefined });
      const outcome = await this.#write({ request, revoked: () => running.revoked });
      letGo(request);
      told(outcome);
    }
    this.#running = undefined;
  }

  #refuse(key: string, reason: NotStoredReason): void {
    const found = this.#waiting.get(key);
    if (!found) return;
    this.#waiting.delete(key);
    letGo(found.request);
    found.told({ kind: 'not-stored', reason });
  }
}

function letGo<S extends StateValue>({ capture: { trunk, head } }: SaveRequest<S>): void {
  trunk.release();
  head?.release();
}
