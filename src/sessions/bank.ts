/**
 * The bank: captures of session state in memory, found by the tokens that a prompt begins with.
 *
 * Invariants: an entry holds one reference to each of its values until it is taken out, which happens once; the comparison
 * with the fences and the insertion are one synchronous block; memory that several entries share is counted once, and the
 * sum never stays above the budget; an entry that somebody waits for is not evicted, but a failed session's is dropped
 * all the same. An entry serves its own lane alone.
 */
import type { FenceView } from './fence-view.js';
import { Holdings } from './holdings.js';
import { TokenTrie } from './token-trie.js';
import type { Capture, CaptureKind, Lane, Lineage, RestoreReason, StateValue } from './types.js';

/** Whose capture it is. */
export interface CaptureOwner {
  readonly session: string;
  readonly lane: Lane;
  readonly lineage: Lineage;
}

export interface BankEntry<S extends StateValue> extends CaptureOwner {
  readonly capture: Capture<S>;
}

interface Entry<S extends StateValue> extends BankEntry<S> {
  /** Whoever waits to restore it. */
  pins: number;
  /** Entries of the same session and lane that go on from here. */
  longer: number;
  /** Order of the last use. */
  used: number;
  resident: boolean;
}

/** fenced: its session has failed since. no_room: it alone is more than what can be made free. */
export type BankResult = 'stored' | 'fenced' | 'no_room';

export type BankMatch<S extends StateValue> =
  { readonly kind: 'found'; readonly entry: BankEntry<S> } | { readonly kind: 'none'; readonly reason: RestoreReason };

export interface BankStats {
  readonly budgetBytes: number;
  readonly usedBytes: number;
  readonly entries: number;
  readonly stored: number;
  readonly evicted: number;
  readonly refusedNoRoom: number;
  readonly refusedFenced: number;
  readonly restored: number;
}

const RANK: Readonly<Record<CaptureKind, number>> = { chunk: 0, prompt: 1, turn: 2 };

export class Bank<S extends StateValue> {
  readonly #budgetBytes: number;
  readonly #fences: FenceView;
  readonly #trie = new TokenTrie<Entry<S>>();
  readonly #entries = new Set<Entry<S>>();
  readonly #holdings = new Holdings();
  #clock = 0;
  readonly #counts = { stored: 0, evicted: 0, refusedNoRoom: 0, refusedFenced: 0, restored: 0 };

  constructor(budgetBytes: number, fences: FenceView) {
    this.#budgetBytes = budgetBytes;
    this.#fences = fences;
  }

  /** Keeps a capture: its values are borrowed and retained here. An older one of the same tokens, session and lane goes. */
  put(capture: Capture<S>, { session, lane, lineage }: CaptureOwner): BankResult {
    if (!this.#fences.mayPublish(lineage)) {
      this.#counts.refusedFenced++;
      return 'fenced';
    }
    const before = this.#at(capture.tokens, session, lane);
    const { kind, tokens, hidden } = capture;
    const kept = { kind, tokens, trunk: capture.trunk.retain(), head: capture.head?.retain(), hidden };
    const entry: Entry<S> = {
      session,
      lane,
      lineage,
      capture: kept,
      pins: 0,
      longer: 0,
      used: ++this.#clock,
      resident: true,
    };
    this.#holdings.add(kept);
    // The newcomer is in before others go, so that what it makes superfluous is known.
    this.#insert(entry);
    if (before) this.#remove(before);
    this.#makeRoom(entry);
    if (this.#holdings.bytes > this.#budgetBytes) {
      this.#remove(entry);
      this.#counts.refusedNoRoom++;
      return 'no_room';
    }
    this.#counts.stored++;
    return 'stored';
  }

  /**
   * The entry with the most tokens that `prompt` begins with, at least one token of it left over; of equals one of the
   * asking session, then the newest.
   */
  match(prompt: ArrayLike<number>, lane: Lane, session: string): BankMatch<S> {
    if (this.#fences.stateOf(session) !== 'ready') return { kind: 'none', reason: 'session_fenced' };
    let found: Entry<S> | undefined;
    let reason: RestoreReason = 'no_entry';
    for (const { depth, values } of this.#trie.along(prompt)) {
      if (depth >= prompt.length) continue;
      let best: Entry<S> | undefined;
      for (const entry of values) {
        if (entry.lane !== lane) reason = reason === 'no_entry' ? 'lane_mismatch' : reason;
        else if (!this.#fences.mayRestore(session, entry.lineage)) reason = 'session_fenced';
        else if (best === undefined || preferred(entry, best, session)) best = entry;
      }
      found = best ?? found;
    }
    return found ? { kind: 'found', entry: found } : { kind: 'none', reason };
  }

  /** Keeps an entry from being evicted until the returned function is called, once. */
  pin(entry: BankEntry<S>): () => void {
    const pinned = entry as Entry<S>;
    pinned.pins++;
    return () => void pinned.pins--;
  }

  /** Notes that an entry was restored. */
  use(entry: BankEntry<S>): void {
    (entry as Entry<S>).used = ++this.#clock;
    this.#counts.restored++;
  }

  /**
   * Takes out everything whose lineage names the session, or what is its own alone, pinned or not; how much that was, by
   * kind.
   */
  dropSession(
    session: string,
    what: 'lineage' | 'own' = 'lineage',
  ): { readonly prefix: number; readonly resident: number; readonly leases: number } {
    const dropped = { prefix: 0, resident: 0, leases: 0 };
    for (const entry of [...this.#entries]) {
      const concerned =
        what === 'own' ? entry.session === session : entry.lineage.some((pair) => pair.session === session);
      if (!concerned) continue;
      dropped[entry.capture.kind === 'turn' ? 'resident' : 'prefix']++;
      dropped.leases += entry.pins;
      this.#remove(entry);
    }
    return dropped;
  }

  /** Everything that is kept now. */
  entries(): readonly BankEntry<S>[] {
    return [...this.#entries];
  }

  stats(): BankStats {
    const { bytes } = this.#holdings;
    return { budgetBytes: this.#budgetBytes, usedBytes: bytes, entries: this.#entries.size, ...this.#counts };
  }

  /** Gives everything back. */
  clear(): void {
    for (const entry of [...this.#entries]) this.#remove(entry);
  }

  #at(tokens: Int32Array, session: string, lane: Lane): Entry<S> | undefined {
    for (const { depth, values } of this.#trie.along(tokens)) {
      if (depth < tokens.length) continue;
      for (const entry of values) if (entry.session === session && entry.lane === lane) return entry;
    }
    return undefined;
  }

  #insert(entry: Entry<S>): void {
    this.#entries.add(entry);
    for (const shorter of this.#shorter(entry)) shorter.longer++;
    for (const longer of this.#trie.under(entry.capture.tokens)) {
      if (isSameLine(longer, entry) && longer.capture.tokens.length > entry.capture.tokens.length) entry.longer++;
    }
    this.#trie.add(entry.capture.tokens, entry);
  }

  #remove(entry: Entry<S>): void {
    if (!entry.resident) return;
    entry.resident = false;
    this.#entries.delete(entry);
    this.#trie.remove(entry.capture.tokens, entry);
    for (const shorter of this.#shorter(entry)) shorter.longer--;
    this.#holdings.remove(entry.capture);
    entry.capture.trunk.release();
    entry.capture.head?.release();
  }

  *#shorter(entry: Entry<S>): Generator<Entry<S>> {
    const { tokens } = entry.capture;
    for (const { depth, values } of this.#trie.along(tokens)) {
      if (depth < tokens.length) for (const other of values) if (isSameLine(other, entry)) yield other;
    }
  }

  /** Evicts where it harms least until the budget is kept, or nothing more can go. */
  #makeRoom(newcomer: Entry<S>): void {
    if (this.#holdings.bytes <= this.#budgetBytes) return;
    const order = [...this.#entries].filter((entry) => entry.pins === 0 && entry !== newcomer).sort(lessHarm);
    for (const entry of order) {
      this.#remove(entry);
      this.#counts.evicted++;
      if (this.#holdings.bytes <= this.#budgetBytes) return;
    }
  }
}

const isSameLine = (a: CaptureOwner, b: CaptureOwner): boolean => a.session === b.session && a.lane === b.lane;

function preferred<S extends StateValue>(a: Entry<S>, b: Entry<S>, session: string): boolean {
  const [ownA, ownB] = [a.session === session, b.session === session];
  return ownA === ownB ? a.used > b.used : ownA;
}

/** Superfluous ones first, then by kind, then the one that was not used for the longest time. */
function lessHarm<S extends StateValue>(a: Entry<S>, b: Entry<S>): number {
  return Number(b.longer > 0) - Number(a.longer > 0) || RANK[a.capture.kind] - RANK[b.capture.kind] || a.used - b.used;
}
