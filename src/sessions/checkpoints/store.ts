/**
 * Checkpoints of sessions on disk: matched against prompts, restored, saved off the request path, dropped.
 *
 * Invariants: what `match` proposes and `restore` returns was checked byte for byte before anyone could see it; `save` never
 * throws and never waits: a capture that cannot be stored is told as such, with its reason, and the server goes on. Rows of
 * the tables go before files do. The store must be closed before the model whose states it was given.
 */
import { PlumblineError } from '../../errors.js';
import type { Lineage, RestoreOutcome, StateStamp, StateValue } from '../types.js';
import { makeRoom, WritePace } from './budget.js';
import { CheckpointIndex, type IndexEntry } from './checkpoint-index.js';
import { zlibChecksum, type Checksum } from './checksum.js';
import { obstacle } from './compatibility.js';
import { readNotes, type StoredNote } from './notes.js';
import { Removals } from './removals.js';
import { restore } from './restore.js';
import { save, type NotStoredReason, type SaveOutcome } from './save.js';
import type { SaveRequest } from './save-plan.js';
import { MOST_WAITING, SaveQueue, type SaveJob } from './save-queue.js';
import { scan, type OtherFile, type ScanReport } from './scan.js';
import { SegmentTable, type Segment } from './segment-table.js';
import type { SessionFolder } from './session-folder.js';
import { exportEntry, importSession } from './session-file.js';
import { UseOrder } from './use-order.js';
import { StoreCounts, type StoreHealth } from './store-counts.js';
import type { Candidate, CheckpointStoreOptions, DropCount, StoreMatch } from './store-types.js';
import { sessionsOf, type StoredSession } from './stored-sessions.js';

export type { Candidate, CheckpointStoreOptions, DropCount, StoreMatch } from './store-types.js';

export class CheckpointStore<S extends StateValue> {
  readonly folder: SessionFolder;
  readonly #o: CheckpointStoreOptions<S>;
  readonly #checksum: Checksum;
  readonly #known: ReadonlySet<string>;
  readonly #index = new CheckpointIndex();
  readonly #segments: SegmentTable;
  readonly #queue: SaveQueue<S>;
  readonly #pace: WritePace;
  readonly #stop = new AbortController();
  readonly #counts = new StoreCounts();
  readonly #removals: Removals;
  readonly #useOrder: UseOrder;
  #others: OtherFile[] = [];
  #report: ScanReport | undefined;
  #sequence = 0;

  private constructor(options: CheckpointStoreOptions<S>) {
    this.#o = options;
    this.folder = options.folder;
    this.#checksum = options.checksum ?? zlibChecksum;
    this.#known = new Set(options.knownGatePolicies);
    this.#removals = new Removals(this.folder.files, options.log, () => this.#counts.removalFailed());
    this.#segments = new SegmentTable(({ id }) => void this.#removals.remove(this.folder.segmentPath(id)));
    this.#useOrder = new UseOrder(this.folder, this.#index, this.#checksum);
    this.#pace = new WritePace(options.budget.bytesPerSecond);
    const { mostWaiting: captures = MOST_WAITING, waitingBytes: bytes = Infinity } = options;
    this.#queue = new SaveQueue({ captures, bytes }, async (job) => this.#save(job));
  }

  /**
   * Reads the folder. The fences must be loaded before.
   * @throws session_store_unusable, request_cancelled
   */
  static async open<S extends StateValue>(options: CheckpointStoreOptions<S>): Promise<CheckpointStore<S>> {
    const store = new CheckpointStore(options);
    try {
      store.#report = await scan({
        folder: options.folder,
        segments: store.#segments,
        index: store.#index,
        fences: options.fences,
        checksum: store.#checksum,
        signal: options.signal,
      });
    } catch (thrown) {
      if (thrown instanceof PlumblineError) throw thrown;
      throw new PlumblineError('session_store_unusable', 'the session folder cannot be read', { cause: thrown });
    }
    store.#useOrder.restore();
    store.#others = [...store.#report.otherVersions];
    store.#sequence = store.#report.lastSequence;
    return store;
  }

  /** The longest stored state that a prompt begins with, or why there is none. At once, from the tables. */
  match(tokens: Int32Array | readonly number[], stamp: StateStamp): StoreMatch {
    const { fences } = this.#o;
    const found = this.#index.match(tokens, stamp, this.#known, ({ lineage }) =>
      fences.isFenced(lineage) ? 'session_fenced' : undefined,
    );
    return found.kind === 'candidate' ? { kind: 'candidate', candidate: found.entry } : found;
  }

  /** Keeps a candidate from being evicted until the answer is called. */
  hold({ id }: Candidate): () => void {
    const entry = this.#index.get(id);
    if (!entry) return () => undefined;
    entry.users++;
    let held = true;
    return () => {
      if (held) entry.users--;
      held = false;
    };
  }

  /** Reads a candidate. The values of the capture are the caller's to release. @throws request_cancelled */
  async restore({ id }: Candidate, signal?: AbortSignal): Promise<RestoreOutcome<S>> {
    const entry = this.#index.get(id);
    if (!entry) return { kind: 'no-match', reason: 'no_entry' };
    const letGo = this.hold(entry);
    const segments = entry.segments.map((segment) => segment.retain());
    const started = performance.now();
    try {
      const { folder, codecs, fences } = this.#o;
      const context = { folder, codecs, fences, segments: this.#segments, checksum: this.#checksum, signal };
      const found = await restore<S>(entry, context);
      if (found.kind === 'rejected') {
        this.#counts.rejected(found.reason);
        this.#o.log?.warn({ checkpoint: id, reason: found.reason, why: found.why }, 'a checkpoint was not restored');
        if (found.damagedSegment) found.damagedSegment.damaged = true;
        if (found.reason === 'checkpoint_damaged') void this.#drop(entry);
        return { kind: 'rejected', reason: found.reason };
      }
      this.#index.touch(entry);
      this.#useOrder.note();
      this.#counts.restored(found.bytes, performance.now() - started);
      return { kind: 'restored', tokens: entry.length, from: 'disk', capture: found.capture };
    } finally {
      for (const segment of segments) segment.release();
      letGo();
    }
  }

  /**
   * What the turns of a session carry beside their states, the oldest first, of those that could serve one of these stamps.
   * What is fenced is not read; a checkpoint whose note is damaged is taken away.
   */
  notes(
    session: string,
    stamps: readonly StateStamp[],
  ): { readonly notes: readonly StoredNote[]; readonly unreadable: number } {
    const { fences } = this.#o;
    const fits = ({ file, lineage }: IndexEntry): boolean =>
      !fences.isFenced(lineage) &&
      stamps.some((stamp) => obstacle(file.header.stamp, stamp, this.#known) === undefined);
    const { notes, damaged, failed } = readNotes(this.entries(session).filter(fits), this.folder, this.#checksum);
    for (const entry of damaged) {
      this.#counts.rejected('checkpoint_damaged');
      this.#o.log?.warn({ checkpoint: entry.id }, 'the note of a checkpoint does not hold');
      void this.#drop(entry);
    }
    return { notes, unreadable: damaged.length + failed };
  }

  /**
   * Takes a capture to be written when its turn comes; its values are held until then, and its token ids and hidden row
   * must not change. The lineage is that of the moment when the rows were read.
   * @param told what became of it; default nobody
   */
  save(request: SaveRequest<S>, told?: (outcome: SaveOutcome) => void): void {
    this.#queue.add(request, (outcome) => {
      this.#counts.saved(outcome, this.#o.now ?? Date.now);
      if (outcome.kind === 'not-stored' && outcome.cause !== undefined) {
        this.#o.log?.warn({ reason: outcome.reason, err: outcome.cause }, 'a session was not stored');
      }
      told?.(outcome);
    });
  }

  /** Lets go of what waits to be written for a session, and forbids the publication of what is being written. */
  cancelSaves(session: string, reason: NotStoredReason = 'dropped'): number {
    return this.#queue.revoke((candidate) => candidate === session, reason);
  }

  /** Takes away every checkpoint of a session. Gone from the tables at once, from the disk when it resolves. */
  async dropSession(session: string): Promise<DropCount> {
    return this.dropWhere((entry) => entry.session === session, this.cancelSaves(session));
  }

  /** Takes away every checkpoint whose lineage names the session: its own, and what grew from it. */
  async dropLineage(session: string): Promise<DropCount> {
    return this.dropWhere(({ lineage }) => lineage.some((pair) => pair.session === session), this.cancelSaves(session));
  }

  /** Takes away every checkpoint that a fence forbids. */
  async dropFenced(): Promise<DropCount> {
    return this.dropWhere(({ lineage }) => this.#o.fences.isFenced(lineage), 0);
  }

  /** Takes away what is chosen; rejects with the system's error when a file stays. */
  async dropWhere(chosen: (entry: { session: string; lineage: Lineage }) => boolean, pendingSaves = 0) {
    const entries = [...this.#index.values()].filter(chosen);
    const segments = new Set(entries.flatMap((entry) => entry.segments));
    const removals = entries.map((entry) => this.#drop(entry));
    let blobsKeptShared = 0;
    for (const { holders } of segments) if (holders > 0) blobsKeptShared++;
    await Promise.all(removals);
    await this.#removals.settled();
    return { checkpoints: entries.length, indexRows: entries.length, blobsKeptShared, pendingSaves };
  }

  /** Tries again to take away what could not be taken away before. @returns how many files still stay */
  async sweep(): Promise<number> {
    return this.#removals.sweep();
  }

  /** The newest checkpoint of a session as one file that needs no other; undefined when there is none. */
  exportSession(session: string): AsyncGenerator<Uint8Array> | undefined {
    const own = this.entries(session);
    if (own.length === 0) return undefined;
    const newest = own.reduce((a, b) => (b.file.header.sequence > a.file.header.sequence ? b : a));
    return this.#export(newest);
  }

  async *#export(entry: IndexEntry): AsyncGenerator<Uint8Array> {
    const letGo = this.hold(entry);
    const segments = entry.segments.map((segment) => segment.retain());
    try {
      yield* exportEntry(entry, this.folder, this.#checksum);
    } finally {
      for (const segment of segments) segment.release();
      letGo();
    }
  }

  /** @throws session_file_invalid, session_not_stored, and what the source or the file system throws */
  async importSession(
    source: AsyncIterable<Uint8Array>,
  ): Promise<{ readonly session: string; readonly bytes: number }> {
    return importSession(source, {
      folder: this.folder,
      fences: this.#o.fences,
      segments: this.#segments,
      index: this.#index,
      revoked: () => (this.#stop.signal.aborted ? 'stopped' : undefined),
      checksum: this.#checksum,
      sequence: ++this.#sequence,
      mostBytes: this.#o.budget.bytes,
      makeRoom: async (bytes, reused) => this.#makeRoom(bytes, reused),
    });
  }

  /** What the folder holds, by session; in no order that means anything. */
  sessions(): StoredSession[] {
    return sessionsOf(this.#index.values());
  }

  /** The entries of a session, or all, shortest first. */
  entries(session?: string): readonly IndexEntry[] {
    return [...this.#index.values()]
      .filter((entry) => session === undefined || entry.session === session)
      .sort((a, b) => a.length - b.length);
  }

  /** Bytes of all files of the folder that this store answers for. */
  get bytes(): number {
    return this.#index.bytes + this.#segments.bytes + this.#others.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  health(): StoreHealth {
    return this.#counts.health({
      checkpoints: this.#index.size,
      segments: this.#segments.size,
      bytes: this.bytes,
      budget: this.#o.budget,
      waiting: this.#queue.waiting,
      waitingBytes: this.#queue.heldBytes,
      writing: this.#queue.writing,
      scan: this.#report!,
      sweptStaging: this.folder.sweptStaging,
    });
  }

  /** Writes what waits, as fast as the disk takes it; resolves with whether all was written within the time. */
  async flush(milliseconds: number): Promise<boolean> {
    this.#pace.unlimited = true;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => (timer = setTimeout(() => resolve(false), milliseconds)));
    const done = await Promise.race([this.#queue.idle().then(() => true), late]);
    clearTimeout(timer);
    this.#pace.unlimited = false;
    return done;
  }

  /** Stops writing, lets go of all that waits, and of the folder. */
  async close(): Promise<void> {
    this.#queue.stop();
    this.#stop.abort(new PlumblineError('shutting_down', 'the session store is closing'));
    await this.#queue.idle();
    await this.#removals.settled();
    await this.#useOrder.close();
    this.folder.close();
  }

  async #save({ request, revoked }: SaveJob<S>): Promise<SaveOutcome> {
    const outcome = await save(request, {
      folder: this.folder,
      codecs: this.#o.codecs,
      segments: this.#segments,
      index: this.#index,
      fences: this.#o.fences,
      checksum: this.#checksum,
      pace: this.#pace,
      sequence: ++this.#sequence,
      now: this.#o.now ?? Date.now,
      makeRoom: async (bytes, reused) => this.#makeRoom(bytes, reused),
      signal: this.#stop.signal,
      revoked,
    });
    if (outcome.kind === 'stored') {
      // The same turn, computed again.
      for (const older of this.#index.sameAs(outcome.entry)) if (older.users === 0) void this.#drop(older);
    }
    return outcome;
  }

  #makeRoom(bytes: number, reused: readonly Segment[]): Promise<NotStoredReason | undefined> {
    const { folder } = this;
    return makeRoom(bytes, reused, {
      budget: this.#o.budget,
      used: () => this.bytes,
      free: () => folder.files.freeBytes(folder.path),
      dropUnneeded: () => {
        for (const { path } of this.#others.splice(0)) void this.#removals.remove(path);
        for (const { id } of this.#segments.takeUnused()) void this.#removals.remove(folder.segmentPath(id));
      },
      entries: () => this.#index.values(),
      evict: (entry) => {
        this.#counts.evicted(entry.kind);
        void this.#drop(entry);
      },
      settled: async () => this.#removals.settled(),
    });
  }

  /** Out of the tables now, off the disk later. */
  #drop(entry: IndexEntry): Promise<void> {
    if (!this.#index.remove(entry)) return Promise.resolve();
    return this.#removals.remove(this.folder.checkpointPath(entry.id));
  }
}
