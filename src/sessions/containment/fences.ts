/**
 * The table of fences: which epoch of a session is alive, and whether its next turn must start cold.
 *
 * A session's epoch goes up with each numerical failure. Whatever was computed under a lower one is dead, wherever it lies:
 * every stored copy of state carries a lineage, the (session, epoch) pairs of all that made its rows, and is fenced when any
 * pair of it is below the table. Lineage is compared before something is published and before something is restored.
 *
 * Invariants: an epoch never goes down; `raise` and every comparison are synchronous, so a comparison and the publication
 * that follows it in the same synchronous block cannot be parted by a failure; a session that is `failing` or `cold`
 * restores nothing; a record that cannot be read fences everything of its session.
 */
import type { Lineage, SessionEpoch } from '../types.js';
import { aliasOf, longestAlias } from './prompt-alias.js';
import { sessionHash, type FenceFolder, type FenceRecord, type PromptAlias } from './fence-records.js';

/** failing: a containment is under way. cold: contained, and no turn has been banked since. */
export type FenceState = 'ready' | 'failing' | 'cold';

export interface FenceCounts {
  /** Saves that were refused at their publication. */
  savesRefused: number;
  /** Entries that a restore passed over, and restores that were thrown away. */
  restoresRefused: number;
  writeFailures: number;
}

interface Fence {
  readonly session: string;
  epoch: number;
  state: FenceState;
  /** Containments of the session under way. */
  failing: number;
  /** The newest epoch whose record is on the disk. */
  durableEpoch: number;
  /** A record of it could not be written: nothing of it is written any more. */
  undurable: boolean;
  at: number;
  requestId: string;
  aliases: readonly PromptAlias[];
  settled: Promise<void>;
  settle: () => void;
}

/** An exported session may be brought back by hand: its fence waits that long for it. */
const FORGET_AFTER_MS = 30 * 24 * 3600 * 1000;

/** So many failed prompts of a session are remembered: its retries, not its history. */
const MOST_ALIASES = 8;

export interface RaiseDetails {
  readonly requestId: string;
  /** Prompts by which the session will be asked for again. */
  readonly prompts?: readonly ArrayLike<number>[] | undefined;
}

export class Fences {
  readonly counts: FenceCounts = { savesRefused: 0, restoresRefused: 0, writeFailures: 0 };
  readonly #folder: FenceFolder | undefined;
  readonly #now: () => number;
  readonly #fences = new Map<string, Fence>();
  /** Hashes of sessions with an unreadable record, with the highest epoch that was seen of each. */
  readonly #unreadable = new Map<string, number>();

  /**
   * Reads what is on the disk, so that no index is read before it.
   * @param folder absent: nothing outlives the process, and nothing has to be written
   * @throws what listing the folder throws
   */
  constructor(folder?: FenceFolder, now: () => number = Date.now) {
    this.#folder = folder;
    this.#now = now;
    const { records = [], unreadable = [] } = folder?.load() ?? {};
    for (const { session, epoch, cold, at, requestId, aliases } of records) {
      const fence = this.#entry(session);
      Object.assign(fence, { epoch, at, requestId, aliases, durableEpoch: epoch, state: cold ? 'cold' : 'ready' });
    }
    for (const hash of unreadable) this.#unreadable.set(hash, 0);
  }

  /** The epoch that a turn of this session computes under: taken when it starts, and kept to its end. */
  epochOf(session: string): number {
    return this.#known(session)?.epoch ?? 0;
  }

  stateOf(session: string): FenceState {
    return this.#known(session)?.state ?? 'ready';
  }

  /** Whether anything that the entry grew from has failed since. */
  isFenced(lineage: Lineage): boolean {
    return lineage.some(({ session, epoch }) => {
      if (this.#unreadable.size > 0) {
        const hash = sessionHash(session);
        const seen = this.#unreadable.get(hash);
        if (seen !== undefined) {
          this.#unreadable.set(hash, Math.max(seen, epoch));
          return true;
        }
      }
      return epoch < (this.#fences.get(session)?.epoch ?? 0);
    });
  }

  /** The comparison of a publication, in the synchronous block that publishes. Counts what it refuses. */
  mayPublish(lineage: Lineage): boolean {
    const fenced = this.isFenced(lineage);
    if (fenced) this.counts.savesRefused++;
    return !fenced;
  }

  /** The comparison of a restore by `session`, before and after its bytes are read. Counts what it refuses. */
  mayRestore(session: string, lineage: Lineage): boolean {
    const allowed = this.stateOf(session) === 'ready' && !this.isFenced(lineage);
    if (!allowed) this.counts.restoresRefused++;
    return allowed;
  }

  /** Whether entries with this lineage may go to the disk: not when a fence there could not be written. */
  mayPersist(lineage: Lineage): boolean {
    return !lineage.some(({ session }) => this.#fences.get(session)?.undurable === true);
  }

  /**
   * F2: from here on every publication of the older epoch fails, and the session restores nothing. The caller ends it
   * with `settle`, once for each call.
   */
  raise(session: string, { requestId, prompts = [] }: RaiseDetails): { readonly from: number; readonly to: number } {
    const fence = this.#known(session) ?? this.#entry(session);
    const from = fence.epoch;
    fence.epoch = from + 1;
    if (fence.failing++ === 0) {
      fence.settled = new Promise((resolve) => (fence.settle = resolve));
    }
    fence.state = 'failing';
    fence.at = this.#now();
    fence.requestId = requestId;
    const aliases = [...prompts.map(aliasOf), ...fence.aliases];
    const distinct = new Map(aliases.map((alias) => [alias.hash, alias]));
    fence.aliases = [...distinct.values()].slice(0, MOST_ALIASES);
    return { from, to: fence.epoch };
  }

  /**
   * F4: resolves to whether the fence is on the disk; undefined: there is no disk. Never rejects.
   * After a failure nothing of this session is persisted by this process any more.
   */
  async commit(session: string): Promise<{ readonly durable: boolean | undefined; readonly failure?: unknown }> {
    const fence = this.#fences.get(session);
    if (this.#folder === undefined || fence === undefined) return { durable: undefined };
    try {
      await this.#write(this.#folder, fence);
      return { durable: true };
    } catch (failure) {
      this.counts.writeFailures++;
      fence.undurable = true;
      return { durable: false, failure };
    }
  }

  /** F7: one containment is over; the last one under way leaves the session `cold`. */
  settle(session: string): void {
    const fence = this.#fences.get(session);
    if (fence === undefined || fence.failing === 0 || --fence.failing > 0) return;
    fence.state = 'cold';
    fence.settle();
  }

  /** Resolves when no containment of this session is under way; undefined when none is. */
  settled(session: string): Promise<void> | undefined {
    const fence = this.#fences.get(session);
    return fence !== undefined && fence.failing > 0 ? fence.settled : undefined;
  }

  /** A turn was banked: under the living epoch it ends the cold time of its session. */
  banked({ session, epoch }: SessionEpoch): void {
    const fence = this.#fences.get(session);
    if (fence?.state !== 'cold' || fence.epoch !== epoch) return;
    fence.state = 'ready';
    fence.aliases = [];
    // Losing this write costs one cold turn and nothing else.
    if (this.#folder) void this.#write(this.#folder, fence).catch(() => undefined);
  }

  /** The failed session that a prompt without an id goes on with: the one with the longest failed prompt in it. */
  sessionOfPrompt(prompt: ArrayLike<number>): string | undefined {
    const cold = [...this.#fences.values()].filter(({ aliases, state }) => aliases.length > 0 && state !== 'ready');
    if (cold.length === 0) return undefined;
    return longestAlias(
      prompt,
      cold.flatMap(({ aliases, session }) => aliases.map((alias) => ({ alias, value: session }))),
    );
  }

  /** Resolves when nothing is being written. */
  async idle(): Promise<void> {
    await this.#folder?.idle();
  }

  /** Sessions that are not ready now. */
  get notReady(): readonly { readonly session: string; readonly epoch: number; readonly state: FenceState }[] {
    return [...this.#fences.values()].filter(({ state }) => state !== 'ready');
  }

  /** False as long as the newest epoch of any session is known to this process alone, although there is a disk. */
  get durable(): boolean {
    return [...this.#fences.values()].every(
      ({ undurable, durableEpoch, epoch }) => !undurable || durableEpoch === epoch,
    );
  }

  /** Sessions whose fence could not be written. */
  get undurable(): readonly string[] {
    const missing = [...this.#fences.values()].filter(({ undurable, durableEpoch, epoch }) => {
      return undurable && durableEpoch < epoch;
    });
    return missing.map(({ session }) => session);
  }

  /**
   * Forgets the fences that nothing needs any more: old ones, of sessions that are ready and of which no stored entry tells.
   * To be called before anything is kept in memory: a forgotten session begins at epoch 0 again.
   * @param named every session in the lineage of a stored entry, after a sweep that saw all of them
   */
  async forget(named: ReadonlySet<string>): Promise<number> {
    let forgotten = 0;
    for (const { session, state, failing, at } of [...this.#fences.values()]) {
      if (state !== 'ready' || failing > 0 || named.has(session)) continue;
      if (this.#now() - at < FORGET_AFTER_MS) continue;
      this.#fences.delete(session);
      await this.#folder?.remove(sessionHash(session), () => !this.#fences.has(session));
      forgotten++;
    }
    return forgotten;
  }

  async #write(folder: FenceFolder, fence: Fence): Promise<void> {
    let epoch = fence.epoch;
    await folder.write((): FenceRecord => {
      const { session, state, at, requestId, aliases } = fence;
      epoch = fence.epoch;
      return { session, epoch, cold: state !== 'ready', at, requestId, aliases };
    });
    fence.durableEpoch = Math.max(fence.durableEpoch, epoch);
  }

  /** The fence of a session that has one; an unreadable record becomes one above everything that was seen of it. */
  #known(session: string): Fence | undefined {
    const known = this.#fences.get(session);
    if (known !== undefined || this.#unreadable.size === 0) return known;
    const hash = sessionHash(session);
    const seen = this.#unreadable.get(hash);
    if (seen === undefined) return undefined;
    this.#unreadable.delete(hash);
    const fence = this.#entry(session);
    fence.epoch = seen + 1;
    fence.state = 'cold';
    return fence;
  }

  #entry(session: string): Fence {
    const fence: Fence = {
      session,
      epoch: 0,
      state: 'ready',
      failing: 0,
      durableEpoch: 0,
      undurable: false,
      at: this.#now(),
      requestId: '',
      aliases: [],
      settled: Promise.resolve(),
      settle: () => undefined,
    };
    this.#fences.set(session, fence);
    return fence;
  }
}
