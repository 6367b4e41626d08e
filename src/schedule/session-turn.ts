/**
 * The turns of sessions: what a request can begin with, which of its states are kept, what happens when a row of it was
 * invalid.
 *
 * Invariants: what a waiting request will begin with is not evicted; the epoch of a turn is taken when it starts, after any
 * containment of its session, and everything it keeps carries it together with the lineage of what it began with; a turn is
 * kept as a whole only from its closing forward; whatever a store refuses, the request itself goes on.
 */
import type { SequenceState } from '../engine/model.js';
import { toPlumblineError, type PlumblineError } from '../errors.js';
import type { SequenceStart } from '../generate/boundary.js';
import type { TokenSequence } from '../generate/sequence.js';
import type { RequestSampler } from '../sample/sampler.js';
import type { Bank, BankEntry } from '../sessions/bank.js';
import { Conversations, type SessionName } from '../sessions/conversations.js';
import type { FenceView } from '../sessions/fence-view.js';
import type { Capture, Lane, Lineage, RestoreReason, StateStamp } from '../sessions/types.js';
import type { DiskCandidate, DiskStore } from './disk-store.js';
import type { ContainableFailure } from './job.js';
import type { GenerationRequest, NotStored, SessionReport } from './request.js';
import type { Turn, TurnKeeper, TurnStart } from './turn-keeper.js';

/** A row of a session's request was invalid. */
export interface SessionFailure extends ContainableFailure {
  readonly request: GenerationRequest;
  readonly session: SessionName;
  readonly lane: Lane;
  /** The part of the prompt by which a client without a session id will ask again. */
  readonly stablePrompt: readonly number[];
}

export interface SessionsOptions {
  readonly stamp: (lane: Lane) => StateStamp;
  readonly laneOf: (sampler: RequestSampler) => Lane;
  readonly fences: FenceView;
  /** Absent: nothing is kept in memory. */
  readonly bank?: Bank<SequenceState> | undefined;
  /** Absent: nothing is kept on a disk. */
  readonly disk?: DiskStore | undefined;
  /** Whether the disk may be read and written now, and if not why. */
  readonly diskUsable?: (() => boolean) | undefined;
  /** Whether captures with this lineage may go to the disk. */
  readonly mayPersist?: ((lineage: Lineage) => boolean) | undefined;
  /** Drops all that the session has; resolves when the client may be told. Default: nothing happens. */
  readonly contain?: ((failure: SessionFailure) => Promise<void>) | undefined;
  readonly onRestore?: ((outcome: SessionReport['restore'], tokens: number) => void) | undefined;
}

export class Sessions implements TurnKeeper {
  readonly conversations: Conversations;
  readonly #o: SessionsOptions;
  /** Turns that run or wait. */
  readonly #turns = new Set<SessionTurn>();

  constructor(options: SessionsOptions) {
    this.#o = options;
    this.conversations = new Conversations(options.fences);
  }

  begin(request: GenerationRequest, sampler: RequestSampler): Turn {
    const lane = this.#o.laneOf(sampler);
    const { promptTokens, session: wish } = request;
    // A prompt that nothing of will come again is known by all of it.
    const { length } = promptTokens;
    const stablePrefix = wish?.stablePrefix === undefined || wish.stablePrefix < 1 ? length : wish.stablePrefix;
    const name: SessionName =
      wish?.id === undefined
        ? this.conversations.infer(promptTokens, stablePrefix, this.#storedSessions(promptTokens, lane))
        : { id: wish.id, source: wish.source ?? 'header' };
    const turn = new SessionTurn(this.#o, request, name, lane, stablePrefix, () => this.#turns.delete(turn));
    this.#turns.add(turn);
    return turn;
  }

  /** Requests that run or wait for a session now. */
  active(session: string): number {
    return [...this.#turns].filter(({ name }) => name.id === session).length;
  }

  #storedSessions(prompt: readonly number[], lane: Lane): string[] {
    const found = this.#o.disk?.match(prompt, this.#o.stamp(lane));
    return found?.kind === 'candidate' && found.candidate.kind !== 'chunk' ? [found.candidate.session] : [];
  }
}

class SessionTurn implements Turn {
  readonly #o: SessionsOptions;
  readonly #request: GenerationRequest;
  readonly #lane: Lane;
  readonly #stablePrefix: number;
  readonly #onEnd: () => void;
  /** Lets go of what the request waits to begin with. */
  #unpin: (() => void) | undefined;
  #lineage: Lineage = [];
  #restore: SessionReport['restore'] = { kind: 'no-match', reason: 'bank_off' };
  #reused = 0;
  #stored: SessionReport['stored'];
  #turnTokens: Int32Array | undefined;
  /** Of the session when the prompt was made. */
  readonly #promptEpoch: number;

  constructor(
    options: SessionsOptions,
    request: GenerationRequest,
    readonly name: SessionName,
    lane: Lane,
    stablePrefix: number,
    onEnd: () => void,
  ) {
    this.#o = options;
    this.#request = request;
    this.#lane = lane;
    this.#stablePrefix = stablePrefix;
    this.#onEnd = onEnd;
    this.#promptEpoch = options.fences.epochOf(name.id);
    // A turn that ends without being closed was cut.
    this.#stored = { ram: options.bank ? 'trimmed' : 'off', disk: options.disk ? 'trimmed' : 'off' };
    const found = this.#inBank();
    if (found?.kind === 'found') this.#unpin = options.bank?.pin(found.entry);
    else {
      const candidate = this.#onDisk();
      if (candidate) this.#unpin = options.disk?.hold(candidate);
    }
  }

  start(make: (start: TurnStart) => TokenSequence, signal: AbortSignal): TokenSequence | Promise<TokenSequence> {
    const settled = this.#o.fences.settled(this.name.id);
    if (settled) return settled.then(async () => this.#start(make, signal));
    return this.#start(make, signal);
  }

  async contain(failure: ContainableFailure): Promise<void> {
    const stablePrompt = this.#request.promptTokens.slice(0, this.#stablePrefix);
    const { name: session, ...own } = { name: this.name, request: this.#request, lane: this.#lane, stablePrompt };
    await this.#o.contain?.({ ...failure, ...own, session });
  }

  report(): SessionReport {
    const wish = this.#request.session;
    return {
      ...this.name,
      restore: this.#restore,
      reusedTokens: this.#reused,
      matchedBy: this.#matchedBy(wish?.prefix),
      textDeclined: wish?.textDeclined,
      splicedTurns: wish?.splicedTurns ?? 0,
      spliceDeclined: wish?.spliceDeclined,
      stored: this.#stored,
      turnTokens: this.#turnTokens,
    };
  }

  #matchedBy(prefix: NonNullable<GenerationRequest['session']>['prefix']): SessionReport['matchedBy'] {
    if (this.#restore.kind !== 'restored') return undefined;
    return prefix !== undefined && this.#reused >= prefix.tokens ? prefix.by : 'tokens';
  }

  end(): void {
    this.#unpin?.();
    this.#unpin = undefined;
    this.#onEnd();
  }

  #start(make: (start: TurnStart) => TokenSequence, signal: AbortSignal): TokenSequence | Promise<TokenSequence> {
    this.#lineage = [this.#ownPair()];
    const found = this.#inBank();
    const candidate = this.#onDisk();
    const inRam = found?.kind === 'found' ? found.entry : undefined;
    if (candidate && candidate.length > (inRam?.capture.tokens.length ?? 0)) {
      return this.#startFromDisk(candidate, make, signal);
    }
    if (inRam) return this.#startFrom(inRam, make);
    return this.#startCold(this.#noneReason(found), make);
  }

  async #startFromDisk(
    candidate: DiskCandidate,
    make: (start: TurnStart) => TokenSequence,
    signal: AbortSignal,
  ): Promise<TokenSequence> {
    const { disk, fences, bank } = this.#o;
    const outcome = await disk!
      .restore(candidate, signal)
      .catch((thrown: unknown) => outOfMemory(toPlumblineError(thrown)));
    // The session may have failed while its file was read; its epoch is that of now.
    const settled = fences.settled(this.name.id);
    if (settled) await settled;
    this.#lineage = [this.#ownPair()];
    if (outcome.kind === 'restored') {
      const { capture } = outcome;
      if (fences.mayRestore(this.name.id, candidate.lineage)) {
        const owner = { session: candidate.session, lane: this.#lane, lineage: candidate.lineage };
        bank?.put(capture, owner);
        return this.#begin(capture, 'disk', candidate.lineage, make, 'given');
      }
      capture.trunk.release();
      capture.head?.release();
      return this.#startCold('session_fenced', make, 'rejected');
    }
    // The memory may still have something shorter.
    const found = this.#inBank();
    if (found?.kind === 'found') return this.#startFrom(found.entry, make);
    return this.#startCold(outcome.reason, make, outcome.kind);
  }

  #startFrom(entry: BankEntry<SequenceState>, make: (start: TurnStart) => TokenSequence): TokenSequence {
    this.#o.bank?.use(entry);
    return this.#begin(entry.capture, 'ram', entry.lineage, make, 'borrowed');
  }

  #begin(
    { tokens, trunk, head, hidden }: Capture<SequenceState>,
    from: 'ram' | 'disk',
    lineage: Lineage,
    make: (start: TurnStart) => TokenSequence,
    references: 'given' | 'borrowed',
  ): TokenSequence {
    this.#lineage = joinLineages(lineage, this.#lineage);
    this.#restore = { kind: 'restored', from };
    this.#reused = tokens.length;
    this.#o.onRestore?.(this.#restore, this.#reused);
    const start: SequenceStart = { trunk, head, hidden };
    if (references === 'borrowed') {
      trunk.retain();
      head?.retain();
    }
    return this.#make(make, start);
  }

  #startCold(
    reason: RestoreReason,
    make: (start: TurnStart) => TokenSequence,
    kind: 'no-match' | 'rejected' = 'no-match',
  ): TokenSequence {
    this.#restore = { kind, reason };
    this.#o.onRestore?.(this.#restore, 0);
    return this.#make(make, undefined);
  }

  #make(make: (start: TurnStart) => TokenSequence, start: SequenceStart | undefined): TokenSequence {
    const sequence = make({
      start,
      stablePrefix: this.#stablePrefix,
      closingForward: true,
      onBoundary: (capture) => this.#keep(capture),
    });
    this.#unpin?.();
    this.#unpin = undefined;
    return sequence;
  }

  #keep(capture: Capture<SequenceState>): void {
    const { bank, disk, fences, stamp, diskUsable, mayPersist } = this.#o;
    const owner = { session: this.name.id, lane: this.#lane, lineage: this.#lineage };
    const ram = bank ? bank.put(capture, owner) : 'off';
    let onDisk: 'queued' | NotStored = 'off';
    if (disk && this.#isForDisk(capture)) {
      if (fences.isFenced(this.#lineage)) onDisk = 'fenced';
      else if (diskUsable?.() === false || mayPersist?.(this.#lineage) === false) onDisk = 'unusable';
      else {
        const { id: session } = this.name;
        disk.save({ capture, stamp: stamp(this.#lane), lineage: this.#lineage, session, note: this.#noteOf(capture) });
        onDisk = 'queued';
      }
    }
    if (capture.kind !== 'turn') return;
    this.#stored = { ram, disk: onDisk };
    if (ram !== 'stored' && onDisk !== 'queued') return;
    if (!this.#putsBackFailed) this.#turnTokens = capture.tokens;
    fences.banked(this.#lineage.at(-1)!);
  }

  /** Made when the capture is written, off the request's path. */
  #noteOf({ kind, tokens }: Capture<SequenceState>): (() => Uint8Array | undefined) | undefined {
    const { note } = this.#request.session ?? {};
    if (kind !== 'turn' || note === undefined || this.#putsBackFailed) return undefined;
    return () => note(tokens);
  }

  /** The session failed between the making of the prompt and its start: answers of before stand in it, and end with it. */
  get #putsBackFailed(): boolean {
    return (this.#request.session?.splicedTurns ?? 0) > 0 && this.#ownPair().epoch !== this.#promptEpoch;
  }

  /**
   * Turns go to the disk. What a later prompt begins with when it does not agree with the turn goes there where that is to
   * be expected: without a name of its session, earlier answers are text again.
   */
  #isForDisk({ kind, tokens }: Capture<SequenceState>): boolean {
    if (kind !== 'prompt') return kind === 'turn';
    const stable = Math.min(this.#stablePrefix, this.#request.promptTokens.length - 1);
    return this.name.source === 'inferred' && tokens.length === stable;
  }

  #inBank(): ReturnType<Bank<SequenceState>['match']> | undefined {
    return this.#o.bank?.match(this.#request.promptTokens, this.#lane, this.name.id);
  }

  #onDisk(): DiskCandidate | undefined {
    const { disk, diskUsable, fences } = this.#o;
    if (!disk || diskUsable?.() === false || fences.stateOf(this.name.id) !== 'ready') return undefined;
    const found = disk.match(this.#request.promptTokens, this.#o.stamp(this.#lane));
    return found.kind === 'candidate' ? found.candidate : undefined;
  }

  /** Why nothing was found: what the disk says of it where the memory knows of nothing. */
  #noneReason(inBank: ReturnType<Bank<SequenceState>['match']> | undefined): RestoreReason {
    const { disk, diskUsable } = this.#o;
    const inRam = inBank?.kind === 'none' ? inBank.reason : undefined;
    if (!disk) return inRam ?? 'bank_off';
    if (inRam !== undefined && inRam !== 'no_entry') return inRam;
    return diskUsable?.() === false ? 'busy' : this.#diskReason(disk);
  }

  #diskReason(disk: DiskStore): RestoreReason {
    const { fences, stamp } = this.#o;
    if (fences.stateOf(this.name.id) !== 'ready') return 'session_fenced';
    const found = disk.match(this.#request.promptTokens, stamp(this.#lane));
    return found.kind === 'no-match' ? found.reason : 'read_failed';
  }

  #ownPair(): { readonly session: string; readonly epoch: number } {
    const { id } = this.name;
    return { session: id, epoch: this.#o.fences.epochOf(id) };
  }
}

/** No memory for what was to be read: the request goes on without it. Anything else ends the request. */
function outOfMemory(error: PlumblineError): { readonly kind: 'rejected'; readonly reason: RestoreReason } {
  if (error.code !== 'out_of_memory') throw error;
  return { kind: 'rejected', reason: 'no_memory' };
}

/** Every pair once, the own one last. */
function joinLineages(before: Lineage, own: Lineage): Lineage {
  const isOwn = (pair: Lineage[number]): boolean =>
    own.some(({ session, epoch }) => session === pair.session && epoch === pair.epoch);
  return [...before.filter((pair) => !isOwn(pair)), ...own];
}
