/**
 * Writes one capture: new pages as a segment, the rest as a checkpoint, under staging names, synced; then published.
 *
 * Invariants: publication is one synchronous block: lock, cancellation and fences are looked at, files renamed, tables
 * filled, and nothing comes between. What fails before it leaves nothing but staging, which is taken away; a checkpoint that
 * could not be made durable afterwards is taken back.
 */
import { toPlumblineError } from '../../errors.js';
import type { FenceView } from '../fence-view.js';
import type { StateValue } from '../types.js';
import type { WritePace } from './budget.js';
import { IndexEntry, type CheckpointIndex } from './checkpoint-index.js';
import { systemCode } from './file-layer.js';
import type { Checksum } from './checksum.js';
import { planSave, type Codecs, type SavedBytes, type SavePlan, type SaveRequest } from './save-plan.js';
import type { CheckpointFile } from './checkpoint-format.js';
import type { SegmentFile } from './segment-format.js';
import type { Segment, SegmentTable } from './segment-table.js';
import type { SessionFolder } from './session-folder.js';
import { writeViews } from './transfer.js';

/** Why a capture is not on the disk. */
export type NotStoredReason =
  /** The disk has no room. */
  | 'disk_full'
  /** It would leave others too little room (flag --session-min-free-mib), and nothing more may go. */
  | 'disk_low'
  /** It does not fit the budget of the folder (flag --session-disk-mib), and nothing more may go. */
  | 'over_budget'
  | 'read_only'
  | 'write_failed'
  /** Another process has taken the folder. */
  | 'lock_lost'
  /** Its session, or one that it grew from, failed meanwhile. */
  | 'session_fenced'
  /** Its session was dropped meanwhile. */
  | 'dropped'
  /** A newer capture of the session took its place in the queue. */
  | 'superseded'
  | 'queue_full'
  | 'stopped';

export type SaveOutcome =
  | { readonly kind: 'stored'; readonly bytes: SavedBytes; readonly entry: IndexEntry }
  | { readonly kind: 'not-stored'; readonly reason: NotStoredReason; readonly cause?: unknown };

/** What a store asks of the fences. */
export type StoreFences = Pick<FenceView, 'isFenced' | 'mayPublish'>;

export interface SaveContext<S extends StateValue> {
  readonly folder: SessionFolder;
  readonly codecs: Codecs<S>;
  readonly segments: SegmentTable;
  readonly index: CheckpointIndex;
  readonly fences: StoreFences;
  readonly checksum: Checksum;
  readonly pace: WritePace;
  readonly sequence: number;
  readonly now: () => number;
  /** Makes room for so many bytes, or says why there is none. */
  readonly makeRoom: (bytes: number, reused: readonly Segment[]) => Promise<NotStoredReason | undefined>;
  readonly signal: AbortSignal;
  /** Why it must not be published any more. */
  readonly revoked: () => NotStoredReason | undefined;
}

/** Never throws: what fails is the outcome. The states of the request stay the caller's. */
export async function save<S extends StateValue>(
  request: SaveRequest<S>,
  context: SaveContext<S>,
): Promise<SaveOutcome> {
  const { folder, segments, checksum, signal } = context;
  const id = folder.newId(context.sequence);
  let plan: SavePlan | undefined;
  try {
    plan = await planSave(request, { ...context, segmentId: id, writtenAt: context.now(), segments, checksum, signal });
    const refused = await context.makeRoom(sizeOf(plan), plan.reused);
    if (refused !== undefined) return { kind: 'not-stored', reason: refused };
    await stage(plan, id, context);
    const { segment, checkpoint, reused, newPages } = plan;
    const published = publish({ id, segment: segment?.file, checkpoint: checkpoint.file, reused }, context);
    if ('reason' in published) {
      await sweep(id, folder);
      return { kind: 'not-stored', reason: published.reason };
    }
    const { entry, added } = published;
    if (added) newPages.forEach(({ identity }, page) => segments.remember(identity, { segment: added, page }));
    try {
      await settle(entry, added !== undefined, context);
    } catch (error) {
      return { kind: 'not-stored', reason: reasonOf(error), cause: error };
    }
    return { kind: 'stored', bytes: plan.bytes, entry };
  } catch (error) {
    await sweep(id, folder);
    const reason = context.revoked() ?? (signal.aborted ? 'stopped' : reasonOf(error));
    return { kind: 'not-stored', reason, cause: error };
  } finally {
    plan?.release();
  }
}

export const sizeOf = ({ bytes }: SavePlan): number => bytes.pages + bytes.records + bytes.fixed + bytes.overhead;

async function stage<S extends StateValue>(plan: SavePlan, id: string, context: SaveContext<S>): Promise<void> {
  const { folder, pace, signal } = context;
  const pieces = [
    ...(plan.segment ? [{ path: folder.stagedSegment(id), views: plan.segment.views }] : []),
    { path: folder.stagedCheckpoint(id), views: plan.checkpoint.views },
  ];
  for (const { path, views } of pieces) {
    const file = folder.files.open(path, 'create');
    try {
      await writeViews(file, views, 0, (bytes) => pace.take(bytes, signal), signal);
      await file.sync();
    } finally {
      file.close();
    }
  }
}

/** Two files under their staging names, whole and synced. */
export interface Staged {
  readonly id: string;
  readonly segment: SegmentFile | undefined;
  readonly checkpoint: CheckpointFile;
  /** Segments that the checkpoint refers to beside its own, which comes last. */
  readonly reused: readonly Segment[];
}

export type PublishContext = Pick<SaveContext<StateValue>, 'folder' | 'fences' | 'segments' | 'index' | 'revoked'>;

/** Synchronous: what it sees of the fences is still so when the files have their names. */
export function publish(
  { id, segment, checkpoint, reused }: Staged,
  { folder, fences, segments, index, revoked }: PublishContext,
): { readonly entry: IndexEntry; readonly added: Segment | undefined } | { readonly reason: NotStoredReason } {
  const reason = revoked() ?? (fences.mayPublish(checkpoint.lineage) ? undefined : 'session_fenced');
  if (reason !== undefined) return { reason };
  if (!folder.lock.held) return { reason: 'lock_lost' };
  const { files } = folder;
  if (segment) files.rename(folder.stagedSegment(id), folder.segmentPath(id));
  try {
    files.rename(folder.stagedCheckpoint(id), folder.checkpointPath(id));
  } catch (error) {
    if (segment) files.rename(folder.segmentPath(id), folder.stagedSegment(id));
    throw error;
  }
  const added = segment && segments.add(segment);
  const entry = new IndexEntry(id, checkpoint, added ? [...reused, added] : reused);
  index.add(entry);
  return { entry, added };
}

/** Makes the new names durable, or takes the entry back. */
export async function settle(
  entry: IndexEntry,
  withSegment: boolean,
  { folder, index }: Pick<PublishContext, 'folder' | 'index'>,
): Promise<void> {
  try {
    if (withSegment) await folder.files.syncFolder(folder.segments);
    await folder.files.syncFolder(folder.checkpoints);
  } catch (error) {
    if (index.remove(entry)) await folder.files.remove(folder.checkpointPath(entry.id)).catch(() => undefined);
    throw error;
  }
}

/** What cannot be taken away now goes when the folder is opened again. */
export async function sweep(id: string, folder: SessionFolder): Promise<void> {
  for (const path of [folder.stagedSegment(id), folder.stagedCheckpoint(id)]) {
    await folder.files.remove(path).catch(() => undefined);
  }
}

/** The system's words for a failed write. */
export function reasonOf(error: unknown): NotStoredReason {
  switch (systemCode(error)) {
    case 'ENOSPC':
    case 'EDQUOT':
      return 'disk_full';
    case 'EROFS':
    case 'EACCES':
    case 'EPERM':
      return 'read_only';
    default:
      return toPlumblineError(error).code === 'request_cancelled' ? 'stopped' : 'write_failed';
  }
}
