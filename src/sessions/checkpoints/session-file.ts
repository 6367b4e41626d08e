/**
 * A session as one file that can be carried to another folder: a frame that says how long its two parts are, a segment with
 * all pages, and the newest checkpoint.
 *
 * Invariants: what is taken in is written to staging first, read from there as a folder is read, every byte of it checked on
 * the way into the new files, and published like a save: the fences of this folder decide, by the lineage that the file
 * brings with it.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { PlumblineError } from '../../errors.js';
import type { Checksum } from './checksum.js';
import { readCheckpoint, referenceFault } from './checkpoint-format.js';
import type { IndexEntry } from './checkpoint-index.js';
import type { FileLayer, OpenFile } from './file-layer.js';
import { encodeFrame, readFrame, unusableError } from './frame.js';
import { repack, type RepackSource } from './repack.js';
import { publish, settle, sweep, type NotStoredReason, type PublishContext } from './save.js';
import { count, readSegment, type SegmentFile } from './segment-format.js';
import type { Segment } from './segment-table.js';
import type { SessionFolder } from './session-folder.js';

const SESSION_MAGIC = 'PLUMSESS';
const WHAT = 'the session file';
const headerSchema = z.strictObject({ segmentBytes: count, checkpointBytes: count });

/** The newest checkpoint of a session and its pages. The entry must stay in use until the end. */
export async function* exportEntry(
  entry: IndexEntry,
  folder: SessionFolder,
  checksum: Checksum,
): AsyncGenerator<Uint8Array> {
  const opened: OpenFile[] = [];
  const open = (path: string): OpenFile => {
    const file = folder.files.open(path, 'read');
    opened.push(file);
    return file;
  };
  try {
    const source: RepackSource = {
      checkpoint: entry.file,
      file: open(folder.checkpointPath(entry.id)),
      segments: entry.segments.map(({ id, file }) => ({ file: open(folder.segmentPath(id)), segment: file })),
    };
    const { segment, checkpoint } = repack(
      source,
      { segmentId: folder.newId(entry.file.header.sequence), sequence: entry.file.header.sequence },
      checksum,
    );
    const header = { segmentBytes: segment?.file.byteLength ?? 0, checkpointBytes: checkpoint.file.byteLength };
    yield encodeFrame(SESSION_MAGIC, header, checksum);
    if (segment) yield* segment.bytes();
    yield* checkpoint.bytes();
  } finally {
    for (const file of opened) file.close();
  }
}

export interface ImportContext extends PublishContext {
  readonly checksum: Checksum;
  readonly sequence: number;
  /** A file that is longer is not read to its end. */
  readonly mostBytes: number;
  readonly makeRoom: (bytes: number, reused: readonly Segment[]) => Promise<NotStoredReason | undefined>;
}

/** @throws session_file_invalid, session_not_stored, and what the file system or the source throws */
export async function importSession(
  source: AsyncIterable<Uint8Array>,
  context: ImportContext,
): Promise<{ readonly session: string; readonly bytes: number }> {
  const { folder, checksum, sequence } = context;
  const { files } = folder;
  const id = folder.newId(sequence);
  const staged = join(folder.staging, `${id}.session`);
  let file: OpenFile | undefined;
  try {
    const received = await receive(files, staged, source, context.mostBytes);
    const refused = await context.makeRoom(received, []);
    if (refused !== undefined) throw notStored(refused);
    file = files.open(staged, 'read');
    const { segment, checkpoint } = repack(readSessionFile(file, checksum), { segmentId: id, sequence }, checksum);
    if (segment) await write(files, folder.stagedSegment(id), segment.bytes());
    await write(files, folder.stagedCheckpoint(id), checkpoint.bytes());
    const published = publish({ id, segment: segment?.file, checkpoint: checkpoint.file, reused: [] }, context);
    if ('reason' in published) throw notStored(published.reason);
    await settle(published.entry, segment !== undefined, context);
    const bytes = (segment?.file.byteLength ?? 0) + checkpoint.file.byteLength;
    return { session: published.entry.session, bytes };
  } finally {
    file?.close();
    await sweep(id, folder);
    await files.remove(staged).catch(() => undefined);
  }
}

async function receive(
  files: FileLayer,
  path: string,
  source: AsyncIterable<Uint8Array>,
  most: number,
): Promise<number> {
  const file = files.open(path, 'create');
  let at = 0;
  try {
    for await (const bytes of source) {
      if (at + bytes.byteLength > most) throw notStored('over_budget');
      await file.writeAll([bytes], at);
      at += bytes.byteLength;
    }
  } finally {
    file.close();
  }
  return at;
}

async function write(files: FileLayer, path: string, source: AsyncIterable<Uint8Array>): Promise<void> {
  const file = files.open(path, 'create');
  let at = 0;
  try {
    for await (const bytes of source) {
      await file.writeAll([bytes], at);
      at += bytes.byteLength;
    }
    await file.sync();
  } finally {
    file.close();
  }
}

function readSessionFile(file: OpenFile, checksum: Checksum): RepackSource {
  const frame = readFrame(file, SESSION_MAGIC, checksum);
  if (frame.kind !== 'frame') throw unusableError(WHAT, frame);
  const parsed = headerSchema.safeParse(frame.header);
  const { segmentBytes, checkpointBytes } = parsed.data ?? { segmentBytes: -1, checkpointBytes: -1 };
  if (!parsed.success || frame.end + segmentBytes + checkpointBytes !== file.byteLength) {
    throw new PlumblineError('session_file_invalid', `${WHAT} is cut short, or its header is not that of one`);
  }
  const segments: { file: OpenFile; segment: SegmentFile }[] = [];
  if (segmentBytes > 0) {
    const part = new FilePart(file, frame.end, segmentBytes);
    const segment = readSegment(part, checksum);
    if (segment.kind !== 'segment') throw unusableError(WHAT, segment);
    segments.push({ file: part, segment });
  }
  const part = new FilePart(file, frame.end + segmentBytes, checkpointBytes);
  const checkpoint = readCheckpoint(part, checksum);
  if (checkpoint.kind !== 'checkpoint') throw unusableError(WHAT, checkpoint);
  const fault = referenceFault(
    checkpoint,
    checkpoint.header.segments.map(({ id }, i) =>
      segments[i]?.segment.header.id === id ? segments[i].segment : undefined,
    ),
  );
  if (fault !== undefined) throw new PlumblineError('session_file_invalid', `${WHAT} cannot be used: ${fault}`);
  return { checkpoint, file: part, segments };
}

/** Some bytes of a file as a file of their own; for reading. */
class FilePart implements OpenFile {
  constructor(
    readonly file: OpenFile,
    readonly from: number,
    readonly byteLength: number,
  ) {}

  read(into: Uint8Array, at: number): void {
    this.file.read(into, this.from + at);
  }

  readAll(into: readonly Uint8Array[], at: number): Promise<void> {
    return this.file.readAll(into, this.from + at);
  }

  readSummed(into: readonly Uint8Array[], at: number, checksum: Checksum, before: number): Promise<number[]> {
    return this.file.readSummed(into, this.from + at, checksum, before);
  }

  async writeAll(): Promise<void> {
    throw new PlumblineError('internal_error', 'a part of a file is only read');
  }

  async sync(): Promise<void> {
    // Nothing was written.
  }

  close(): void {
    // The file is closed by whoever opened it.
  }
}

function notStored(reason: NotStoredReason): PlumblineError {
  return new PlumblineError('session_not_stored', `the session was not taken in: ${reason}`);
}
