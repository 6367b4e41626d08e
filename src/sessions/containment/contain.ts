/**
 * What happens after an invalid row of logits, in this order:
 *
 *   F2 raise the epoch   F3 cancel pending saves   F4 make the fence durable   F5 drop memory   F6 drop the disk
 *   F7 the session is cold, whoever waits for it goes on   F8 receipt   and then, by the caller, F9: tell the client.
 *
 * (F0 and F1, the check and the end of the loop, are over when this begins.)
 *
 * Invariants: F2 happens before `contain` returns its promise, so nothing of the failed epoch can be published or restored
 * from then on; the promise never rejects; what fails in F3 to F6 is told in the receipt, counted and tried again by the
 * sweep, and keeps no later step from happening. When neither the fence nor the deletion could be made durable, nothing is
 * restored from the disk until a sweep has succeeded.
 */
import type { FenceCounts, Fences, RaiseDetails } from './fences.js';
import { ReceiptRing, sumDropped, type ContainmentReceipt, type Dropped, type FailedRequest } from './receipts.js';

/** One kind of place where state of a session can lie. A new cache is a new place. */
export interface Place {
  readonly name: string;
  /** F3: saves that wait. F5: memory. F6: the disk. */
  readonly step: 'F3' | 'F5' | 'F6';
  /**
   * Gives up everything whose lineage names the session, and says how much that was. Done twice it does nothing more.
   * The epoch has been raised already: what it finds and what comes later is fenced anyway.
   */
  drop(session: string): Dropped | Promise<Dropped>;
  /** The same of a session that is only to be forgotten: what is its own, and nothing that others grew from it. */
  remove(session: string): Dropped | Promise<Dropped>;
}

export interface ContainmentOptions {
  readonly fences: Fences;
  /** In the order in which they are dropped, within a step. */
  readonly places: readonly Place[];
  readonly onReceipt?: ((receipt: ContainmentReceipt) => void) | undefined;
  /** Told of what a retry could not do either, and of nothing else. */
  readonly onError?: ((place: string, error: unknown) => void) | undefined;
  /** Tests stand between the steps with this. */
  readonly atPoint?: ((point: ContainmentPoint) => void | Promise<void>) | undefined;
  readonly now?: (() => number) | undefined;
  /** Milliseconds before the first retry of what failed; each one after it waits twice as long, a minute at most. */
  readonly retryAfterMs?: number | undefined;
}

/** The moments between the steps; `before-F4` is also called when there is no disk. */
export type ContainmentPoint =
  'before-F2' | 'before-F3' | 'before-F4' | 'before-F5' | 'before-F6' | 'before-F7' | 'before-F9';

export interface ContainmentCounts extends FenceCounts {
  readonly containments: number;
  readonly notReady: number;
}

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 60_000;

export class Containment {
  readonly fences: Fences;
  readonly receipts = new ReceiptRing();
  readonly #options: ContainmentOptions;
  readonly #now: () => number;
  /** Drops that failed, to be tried again. */
  readonly #owed = new Set<{ readonly place: Place; readonly session: string; readonly how: 'drop' | 'remove' }>();
  #containments = 0;
  #diskUsable = true;
  #timer: NodeJS.Timeout | undefined;
  #retryMs: number;
  #sweeping: Promise<number> | undefined;
  #closed = false;

  constructor(options: ContainmentOptions) {
    this.#options = options;
    this.fences = options.fences;
    this.#now = options.now ?? Date.now;
    this.#retryMs = options.retryAfterMs ?? FIRST_RETRY_MS;
  }

  /** Whether checkpoints may be restored at all: not while a failed session is neither fenced nor deleted there. */
  get diskUsable(): boolean {
    return this.#diskUsable;
  }

  get counts(): ContainmentCounts {
    return { ...this.fences.counts, containments: this.#containments, notReady: this.fences.notReady.length };
  }

  /** Drops that failed and are still to be made. */
  get owed(): number {
    return this.#owed.size;
  }

  /** F2 to F8 of one failed request. Resolves when the client may be told. Never rejects. */
  async contain(failed: FailedRequest): Promise<ContainmentReceipt> {
    const started = performance.now();
    const { requestId, session, prompts } = failed;
    const { dropped, ...outcome } = await this.#purge(session, { requestId, prompts });
    const { site, phase, step, nanCount, infCount, vocabSize } = failed.census;
    const receipt: ContainmentReceipt = {
      action: 'non_finite_logits',
      ts: new Date(this.#now()).toISOString(),
      requestId,
      sessionId: session,
      family: failed.family,
      lane: failed.lane,
      depth: failed.depth,
      phase,
      site,
      step,
      census: { nan: nanCount, inf: infCount, vocab: vocabSize },
      restoredTokens: failed.restoredTokens,
      emittedTokens: failed.emittedTokens,
      ...outcome,
      // The request's own state went before this began.
      dropped: { ...dropped, live: dropped.live + 1 },
      milliseconds: performance.now() - started,
    };
    this.#containments++;
    this.receipts.add(receipt);
    try {
      this.#options.onReceipt?.(receipt);
    } catch (error) {
      this.#options.onError?.('receipt', error);
    }
    return receipt;
  }

  /**
   * Takes a session away because somebody asked for it: nothing failed, so nothing is fenced, and what other sessions grew
   * from it stays theirs. A request of it that runs now may keep its turn. Never rejects.
   */
  async remove(session: string): Promise<Pick<PurgeOutcome, 'dropped' | 'errors'>> {
    const dropped: Dropped[] = [];
    const errors: string[] = [];
    for (const step of ['F3', 'F5', 'F6'] as const) await this.#drop(step, session, dropped, errors, 'remove');
    if (errors.length > 0) this.#retryLater();
    return { dropped: sumDropped(dropped), errors };
  }

  /** Tries again what failed. Resolves to how many drops are still owed. */
  sweep(): Promise<number> {
    return (this.#sweeping ??= this.#sweepOnce().finally(() => (this.#sweeping = undefined)));
  }

  /** No retry runs after this. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #purge(session: string, details: RaiseDetails): Promise<PurgeOutcome> {
    const before = this.#options.atPoint?.('before-F2');
    if (before instanceof Promise) await before;
    // Without a test's hook F2 is in the synchronous block of the caller.
    const { from, to } = this.fences.raise(session, details);
    const dropped: Dropped[] = [];
    const errors: string[] = [];
    await this.#pause('before-F3');
    await this.#drop('F3', session, dropped, errors);
    await this.#pause('before-F4');
    const { durable, failure } = await this.fences.commit(session);
    if (durable === false) errors.push(`F4 fence: ${reasonOf(failure)}`);
    await this.#pause('before-F5');
    await this.#drop('F5', session, dropped, errors);
    await this.#pause('before-F6');
    const deleted = await this.#drop('F6', session, dropped, errors);
    if (durable === false && !deleted) this.#diskUsable = false;
    if (errors.length > 0) this.#retryLater();
    await this.#pause('before-F7');
    this.fences.settle(session);
    await this.#pause('before-F9');
    return { fence: { from, to, durable: durable ?? null }, dropped: sumDropped(dropped), errors };
  }

  /** @returns whether every place of the step was dropped */
  async #drop(
    step: Place['step'],
    session: string,
    dropped: Dropped[],
    errors: string[],
    how: 'drop' | 'remove' = 'drop',
  ): Promise<boolean> {
    let whole = true;
    for (const place of this.#options.places) {
      if (place.step !== step) continue;
      try {
        dropped.push(await place[how](session));
      } catch (error) {
        whole = false;
        errors.push(`${step} ${place.name}: ${reasonOf(error)}`);
        this.#owed.add({ place, session, how });
      }
    }
    return whole;
  }

  async #pause(point: ContainmentPoint): Promise<void> {
    await this.#options.atPoint?.(point);
  }

  async #sweepOnce(): Promise<number> {
    for (const owed of [...this.#owed]) {
      try {
        await owed.place[owed.how](owed.session);
        this.#owed.delete(owed);
      } catch (error) {
        this.#options.onError?.(owed.place.name, error);
      }
    }
    for (const session of this.fences.undurable) {
      const { durable, failure } = await this.fences.commit(session);
      if (durable === false) this.#options.onError?.('fence', failure);
    }
    const onDisk = [...this.#owed].filter(({ place }) => place.step === 'F6').map(({ session }) => session);
    this.#diskUsable = !this.fences.undurable.some((session) => onDisk.includes(session));
    if (this.#owed.size + this.fences.undurable.length > 0) this.#retryLater();
    else this.#retryMs = this.#options.retryAfterMs ?? FIRST_RETRY_MS;
    return this.#owed.size;
  }

  #retryLater(): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.sweep(), this.#retryMs);
    this.#timer.unref();
    this.#retryMs = Math.min(this.#retryMs * 2, LONGEST_RETRY_MS);
  }
}

/** What F2 to F6 did. */
export type PurgeOutcome = Pick<ContainmentReceipt, 'fence' | 'dropped' | 'errors'>;

/** The system's code where there is one: its message can hold a path. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}
