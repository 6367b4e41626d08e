/**
 * Reads a session folder into tables: which segments and checkpoints are there and whole, as far as their heads tell.
 *
 * Invariants: nothing is believed before its checksum holds; segments come before the checkpoints that refer to them; what is
 * damaged, fenced, or referred to by nothing is taken away, what another version of plumbline wrote is left where it is and
 * only counted. Names and times of files decide nothing. One unreadable file does not hide the others.
 */
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PlumblineError } from '../../errors.js';
import { readCheckpoint, referenceFault, type CheckpointFile } from './checkpoint-format.js';
import { IndexEntry, type CheckpointIndex } from './checkpoint-index.js';
import type { Checksum } from './checksum.js';
import type { Unusable } from './frame.js';
import type { StoreFences } from './save.js';
import type { SegmentTable } from './segment-table.js';
import { readSegment, type SegmentFile } from './segment-format.js';
import type { SessionFolder } from './session-folder.js';

/** What a scan found besides what it put into the tables. */
export interface ScanReport {
  /** Checkpoints and segments that were damaged, and are gone. */
  readonly damaged: number;
  readonly fenced: number;
  /** Segments that nothing referred to. */
  readonly orphans: number;
  /** Files that could not be read now; they stay. */
  readonly unreadable: number;
  /** Files with names that plumbline does not give; nobody touches them. */
  readonly foreign: number;
  /** Files of another format version; they stay, and count against the budget. */
  readonly otherVersions: readonly OtherFile[];
  /** The greatest sequence number that a whole checkpoint has. */
  readonly lastSequence: number;
}

export interface OtherFile {
  readonly path: string;
  readonly bytes: number;
}

export interface ScanContext {
  readonly folder: SessionFolder;
  readonly segments: SegmentTable;
  readonly index: CheckpointIndex;
  readonly fences: StoreFences;
  readonly checksum: Checksum;
  readonly signal?: AbortSignal | undefined;
}

/** Files after which timers and sockets get their turn. */
const FILES_A_TURN = 64;
/** What SessionFolder.newId makes. */
const OWN_NAME = /^[0-9a-f]{12}-[0-9a-f]{12}\.[a-z]+$/;
const STATE = '.state';
const PAGES = '.pages';

/** @throws request_cancelled, and what listing the folder throws */
export async function scan(context: ScanContext): Promise<ScanReport> {
  const { folder, segments, index, fences } = context;
  const { files } = folder;
  const report = { damaged: 0, fenced: 0, orphans: 0, unreadable: 0, foreign: 0, lastSequence: 0 };
  const otherVersions: OtherFile[] = [];
  const gone: string[] = [];
  const discard = (path: string, why: 'damaged' | 'fenced' | 'orphans'): void => {
    gone.push(path);
    report[why]++;
  };
  const scanFolder = async <T extends { readonly kind: string }>(
    path: string,
    ending: string,
    read: (name: string) => T | Unusable,
    take: (id: string, found: T, path: string) => void,
  ): Promise<void> => {
    for (const [number, { name, bytes }] of files.list(path).entries()) {
      if (number % FILES_A_TURN === 0) await nextTurn();
      if (context.signal?.aborted === true) {
        throw new PlumblineError('request_cancelled', 'reading the session folder was cancelled');
      }
      if (!OWN_NAME.test(name) || !name.endsWith(ending)) {
        report.foreign++;
        continue;
      }
      const place = join(path, name);
      try {
        const found = read(place);
        if (found.kind === 'damaged') discard(place, 'damaged');
        else if (found.kind === 'other-version') otherVersions.push({ path: place, bytes });
        else take(name.slice(0, -ending.length), found as T, place);
      } catch (error) {
        if (error instanceof PlumblineError && error.code === 'session_file_invalid') discard(place, 'damaged');
        else report.unreadable++;
      }
    }
  };
  const opened = <T>(path: string, read: (file: ReturnType<typeof files.open>) => T): T => {
    const file = files.open(path, 'read');
    try {
      return read(file);
    } finally {
      file.close();
    }
  };

  await scanFolder<SegmentFile>(
    folder.segments,
    PAGES,
    (path) => opened(path, (file) => readSegment(file, context.checksum)),
    (id, found, path) => {
      if (found.header.id === id) segments.add(found);
      else discard(path, 'damaged');
    },
  );
  const checkpoints: { readonly id: string; readonly file: CheckpointFile }[] = [];
  await scanFolder<CheckpointFile>(
    folder.checkpoints,
    STATE,
    (path) => opened(path, (file) => readCheckpoint(file, context.checksum)),
    (id, file, path) => {
      report.lastSequence = Math.max(report.lastSequence, file.header.sequence);
      const needed = file.header.segments.map((segment) => segments.get(segment.id)?.file);
      if (fences.isFenced(file.lineage)) discard(path, 'fenced');
      else if (referenceFault(file, needed) !== undefined) discard(path, 'damaged');
      else checkpoints.push({ id, file });
    },
  );
  // Older and shorter ones first, so that what grew from them finds them.
  checkpoints.sort((a, b) => a.file.header.sequence - b.file.header.sequence);
  for (const { id, file } of checkpoints) {
    index.add(
      new IndexEntry(
        id,
        file,
        file.header.segments.map((segment) => segments.get(segment.id)!),
      ),
    );
  }
  // A checkpoint that could not be read may need segments that no other does.
  if (report.unreadable === 0 && otherVersions.length === 0) {
    for (const { id } of segments.takeUnused()) discard(folder.segmentPath(id), 'orphans');
  }
  // What cannot be taken away now is found again, and refused again, the next time.
  for (const path of gone) await files.remove(path).catch(() => undefined);
  return { ...report, otherVersions };
}
