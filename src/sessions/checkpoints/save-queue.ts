/**
 * Saves wait here for the one writer. A capture takes the place of one that it goes on from, of the same session, lane and
 * kind: a folder that is slower than the conversations is written with the latest of each branch. A turn never takes the
 * place of a prompt, because clients that render answers anew, and other sessions, begin with the prompt alone.
 *
 * Invariants: a waiting capture's values are held, and given back once, whether it is written, replaced, refused or dropped;
 * at most `captures` wait, and what waits and what is written keeps at most `bytes` of memory, each piece counted once, or one
 * capture alone; who gives way is the oldest of the session with the most that wait; what became of each is told once.
 */
import { Holdings } from '../holdings.js';
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

/** Captures that may wait, beside the one that is being written. */
export const MOST_WAITING = 8;

/** How much a queue may hold. */
export interface QueueLimits {
  readonly captures: number;
  /** Of states, of what waits and what is being written. */
  readonly bytes: number;
}

export class SaveQueue<S extends StateValue> {
  /** The oldest first. */
  readonly #waiting = new Set<Waiting<S>>();
  readonly #held = new Holdings();
  readonly #write: (job: SaveJob<S>) => Promise<SaveOutcome>;
  readonly #limits: QueueLimits;
  #running: Running | undefined;
  #idle: Promise<void> = Promise.resolve();
  #stopped = false;

  /** @param write never rejects */
  constructor(limits: QueueLimits, write: (job: SaveJob<S>) => Promise<SaveOutcome>) {
    this.#limits = limits;
    this.#write = write;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  get writing(): boolean {
    return this.#running !== undefined;
  }

  /** Memory that would be free if nothing waited and nothing were written may be less: others share it. */
  get heldBytes(): number {
    return this.#held.bytes;
  }

  /** Takes a capture in; its values are held from here on. @param told what became of it, later or at once */
  add(request: SaveRequest<S>, told: (outcome: SaveOutcome) => void): void {
    if (this.#stopped) return told({ kind: 'not-stored', reason: 'stopped' });
    request.capture.trunk.retain();
    request.capture.head?.retain();
    this.#held.add(request.capture);
    for (const before of [...this.#waiting]) {
      if (goesOnFrom(request, before.request)) this.#refuse(before, 'superseded');
    }
    this.#waiting.add({ request, told });
    while (this.#waiting.size > 0 && this.#isOver()) this.#refuse(this.#leastMissed(), 'queue_full');
    if (this.#running === undefined && this.#waiting.size > 0) this.#idle = this.#work();
  }

  #isOver(): boolean {
    if (this.#waiting.size > this.#limits.captures) return true;
    const isAlone = this.#waiting.size === 1 && this.#running === undefined;
    return this.#held.bytes > this.#limits.bytes && !isAlone;
  }

  #leastMissed(): Waiting<S> {
    const counts = new Map<string, number>();
    for (const { request } of this.#waiting) counts.set(request.session, (counts.get(request.session) ?? 0) + 1);
    const most = Math.max(...counts.values());
    return [...this.#waiting].find(({ request }) => counts.get(request.session) === most)!;
  }

  /** Lets go of what waits for these sessions, and forbids the publication of what is being written. How many there were. */
  revoke(concerned: (session: string) => boolean, reason: NotStoredReason): number {
    let count = 0;
    for (const waiting of [...this.#waiting]) {
      if (!concerned(waiting.request.session)) continue;
      this.#refuse(waiting, reason);
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
    for (let [next] = this.#waiting; next !== undefined; [next] = this.#waiting) {
      const { request, told } = next;
      this.#waiting.delete(next);
      const running: Running = (this.#running = { session: request.session, revoked: undefined });
      const outcome = await this.#write({ request, revoked: () => running.revoked });
      this.#letGo(request);
      told(outcome);
    }
    this.#running = undefined;
  }

  #refuse(waiting: Waiting<S>, reason: NotStoredReason): void {
    if (!this.#waiting.delete(waiting)) return;
    this.#letGo(waiting.request);
    waiting.told({ kind: 'not-stored', reason });
  }

  #letGo({ capture }: SaveRequest<S>): void {
    this.#held.remove(capture);
    capture.trunk.release();
    capture.head?.release();
  }
}

/** Whether a capture says all that an earlier one of its session does. */
function goesOnFrom<S extends StateValue>(later: SaveRequest<S>, earlier: SaveRequest<S>): boolean {
  const { kind, tokens } = earlier.capture;
  return (
    later.session === earlier.session &&
    later.stamp.lane === earlier.stamp.lane &&
    later.capture.kind === kind &&
    tokens.length <= later.capture.tokens.length &&
    tokens.every((token, position) => later.capture.tokens[position] === token)
  );
}
