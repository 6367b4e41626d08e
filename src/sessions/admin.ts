/**
 * Sessions as people and commands see them: what is kept of each, in memory and on disk, and how to take it away.
 *
 * Invariants: nothing here tells a text, an id of a token or a path; a session that is taken away takes its pending saves
 * along, and leaves what other sessions grew from it.
 */
import { PlumblineError } from '../errors.js';
import type { Containment, PurgeOutcome } from './containment/contain.js';
import type { FenceState } from './containment/fences.js';
import type { CaptureKind, Lane } from './types.js';

/** What the bank holds of a session. */
export interface ResidentSession {
  readonly session: string;
  readonly entries: number;
  /** Of the longest entry. */
  readonly tokens: number;
  /** Memory that would be free if this session alone were dropped may be less: pages are shared. */
  readonly bytes: number;
}

/** What the folder holds of a session. */
export interface StoredSessionView {
  readonly session: string;
  readonly checkpoints: number;
  readonly tokens: number;
  readonly bytes: number;
  readonly lanes: readonly Lane[];
  /** Milliseconds since 1970. */
  readonly writtenAt: number;
}

/** One checkpoint of a session. */
export interface StoredCheckpointView {
  readonly id: string;
  readonly kind: CaptureKind;
  readonly lane: Lane;
  readonly tokens: number;
  readonly bytes: number;
  readonly writtenAt: number;
}

/** The folder's part. */
export interface StoreAdmin {
  sessions(): readonly StoredSessionView[];
  checkpoints(session: string): readonly StoredCheckpointView[];
  /** Takes away what is fenced, and tries again what could not be taken away. Returns the files that went. */
  collect(): Promise<number>;
  /** The newest checkpoint of a session as one file that needs no other. @throws session_not_found */
  exportSession(session: string): Promise<AsyncIterable<Uint8Array>>;
  /** @returns the session of the file. @throws session_file_invalid, and what the disk throws */
  importSession(file: AsyncIterable<Uint8Array>): Promise<{ readonly session: string; readonly bytes: number }>;
}

export interface SessionSummary {
  readonly session: string;
  /** The model whose states they are; absent in a folder that is looked at without one. */
  readonly model?: string | undefined;
  readonly state: FenceState;
  readonly epoch: number;
  readonly resident: Omit<ResidentSession, 'session'> | undefined;
  readonly stored: Omit<StoredSessionView, 'session'> | undefined;
}

export interface SessionDetails extends SessionSummary {
  readonly checkpoints: readonly StoredCheckpointView[];
}

export type Removal = Pick<PurgeOutcome, 'dropped' | 'errors'>;

/**
 * The kept sessions of one model, or of all that a server has. `model` tells which; a name that no model has is
 * `invalid_request`, and so is its absence where several keep the same id and only one can be meant.
 */
export interface KeptSessions {
  /** Every session of which anything is kept or that must start cold, by model and id. */
  list(model?: string): readonly SessionSummary[];
  /** @throws session_not_found */
  show(session: string, model?: string): SessionDetails;
  /** Takes everything of a session away. @throws session_not_found */
  remove(session: string, model?: string): Promise<Removal>;
  /** Sweeps: what is fenced, what could not be taken away before. @returns files that went, drops still owed */
  collect(model?: string): Promise<{ readonly files: number; readonly owed: number }>;
  /** @throws sessions_off, session_not_found */
  exportSession(session: string, model?: string): Promise<AsyncIterable<Uint8Array>>;
  /** @throws sessions_off, session_file_invalid, and what the disk throws */
  importSession(
    file: AsyncIterable<Uint8Array>,
    model?: string,
  ): Promise<{ readonly session: string; readonly bytes: number }>;
}

export interface SessionAdminParts {
  readonly model?: string | undefined;
  readonly containment: Containment;
  readonly resident: () => readonly ResidentSession[];
  /** Absent: no folder was given. */
  readonly store: StoreAdmin | undefined;
}

export class SessionAdmin implements KeptSessions {
  readonly #parts: SessionAdminParts;

  constructor(parts: SessionAdminParts) {
    this.#parts = parts;
  }

  get model(): string | undefined {
    return this.#parts.model;
  }

  list(): readonly SessionSummary[] {
    const { model, containment, resident, store } = this.#parts;
    const residents = new Map(resident().map(({ session, ...rest }) => [session, rest]));
    const stored = new Map((store?.sessions() ?? []).map(({ session, ...rest }) => [session, rest]));
    const cold = containment.fences.notReady.map(({ session }) => session);
    return [...new Set([...residents.keys(), ...stored.keys(), ...cold])].sort().map((session) => ({
      session,
      ...(model !== undefined && { model }),
      state: containment.fences.stateOf(session),
      epoch: containment.fences.epochOf(session),
      resident: residents.get(session),
      stored: stored.get(session),
    }));
  }

  show(session: string): SessionDetails {
    const found = this.list().find((summary) => summary.session === session);
    if (found === undefined) throw notFound();
    return { ...found, checkpoints: this.#parts.store?.checkpoints(session) ?? [] };
  }

  async remove(session: string): Promise<Removal> {
    if (!this.list().some((kept) => kept.session === session)) throw notFound();
    return this.#parts.containment.remove(session);
  }

  async collect(): Promise<{ readonly files: number; readonly owed: number }> {
    const { containment, store } = this.#parts;
    const owed = await containment.sweep();
    return { files: (await store?.collect()) ?? 0, owed };
  }

  async exportSession(session: string): Promise<AsyncIterable<Uint8Array>> {
    const store = this.#store();
    this.show(session);
    return store.exportSession(session);
  }

  async importSession(file: AsyncIterable<Uint8Array>): Promise<{ readonly session: string; readonly bytes: number }> {
    return this.#store().importSession(file);
  }

  #store(): StoreAdmin {
    const { store } = this.#parts;
    if (store !== undefined) return store;
    throw new PlumblineError('sessions_off', 'there is no session folder; start the server with --session-dir');
  }
}

export function notFound(): PlumblineError {
  return new PlumblineError('session_not_found', 'no session of this id is kept; GET /v1/plumbline/sessions lists all');
}
