/**
 * Sessions on plumbline's own routes, as JSON.
 *
 * Invariant: ids of sessions, sizes, times and states; nothing that tells what was said.
 */
import type { Removal, SessionDetails, SessionSummary } from '../../sessions/admin.js';

export interface SessionJson {
  readonly id: string;
  readonly object: 'plumbline.session';
  /** Absent in a folder that is looked at without a server. */
  readonly model?: string;
  readonly state: string;
  readonly epoch: number;
  readonly resident: { readonly entries: number; readonly tokens: number; readonly bytes: number } | null;
  readonly stored: {
    readonly checkpoints: number;
    readonly tokens: number;
    readonly bytes: number;
    readonly lanes: readonly string[];
    /** ISO 8601. */
    readonly written_at: string;
  } | null;
  /** Only where one session is shown. */
  readonly checkpoints?: readonly CheckpointJson[];
}

export interface CheckpointJson {
  readonly id: string;
  readonly kind: string;
  readonly lane: string;
  readonly tokens: number;
  readonly bytes: number;
  readonly written_at: string;
}

export interface SessionListJson {
  readonly object: 'list';
  readonly data: readonly SessionJson[];
}

export interface DeletedSessionJson {
  readonly id: string;
  readonly object: 'plumbline.session.deleted';
  readonly deleted: true;
  readonly dropped: Readonly<Record<string, number>>;
  /** What could not be taken away yet; it is tried again. */
  readonly errors: readonly string[];
}

const time = (milliseconds: number): string => new Date(milliseconds).toISOString();

export function sessionJson({ session, model, state, epoch, resident, stored }: SessionSummary): SessionJson {
  return {
    id: session,
    object: 'plumbline.session',
    ...(model !== undefined && { model }),
    state,
    epoch,
    resident: resident ? { entries: resident.entries, tokens: resident.tokens, bytes: resident.bytes } : null,
    stored: stored
      ? {
          checkpoints: stored.checkpoints,
          tokens: stored.tokens,
          bytes: stored.bytes,
          lanes: stored.lanes,
          written_at: time(stored.writtenAt),
        }
      : null,
  };
}

export function sessionDetailsJson(details: SessionDetails): SessionJson {
  const checkpoints = details.checkpoints.map(({ id, kind, lane, tokens, bytes, writtenAt }) => {
    return { id, kind, lane, tokens, bytes, written_at: time(writtenAt) };
  });
  return { ...sessionJson(details), checkpoints };
}

export function sessionListJson(sessions: readonly SessionSummary[]): SessionListJson {
  return { object: 'list', data: sessions.map(sessionJson) };
}

export function deletedSessionJson(id: string, { dropped, errors }: Removal): DeletedSessionJson {
  return { id, object: 'plumbline.session.deleted', deleted: true, dropped, errors };
}
