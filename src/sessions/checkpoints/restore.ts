/**
 * Reads one checkpoint back into state values.
 *
 * Invariants: what is read goes into memory that nobody else can see; it becomes a value only after every byte has been
 * checked, and after a last look at the fences in the same synchronous block. Whatever goes wrong, the memory goes back
 * and nothing else has changed.
 */
import { toPlumblineError } from '../../errors.js';
import type { Capture, RestoreReason, StateValue } from '../types.js';
import { readCheckpoint, REFERENCE_WORDS, type CheckpointPart } from './checkpoint-format.js';
import type { IndexEntry } from './checkpoint-index.js';
import type { StateReservation } from './codec.js';
import type { OpenFile } from './file-layer.js';
import type { Checksum } from './checksum.js';
import type { StoreFences } from './save.js';
import type { Codecs } from './save-plan.js';
import type { Segment, SegmentTable } from './segment-table.js';
import { bytesOf, locatePage } from './segment-format.js';
import type { SessionFolder } from './session-folder.js';
import { readUnits, type Unit } from './transfer.js';

export interface RestoreContext<S extends StateValue> {
  readonly folder: SessionFolder;
  readonly codecs: Codecs<S>;
  readonly segments: SegmentTable;
  readonly fences: StoreFences;
  readonly checksum: Checksum;
  readonly signal: AbortSignal | undefined;
}

export type ReadBack<S extends StateValue> =
  | { readonly kind: 'restored'; readonly capture: Capture<S>; readonly bytes: number }
  | {
      readonly kind: 'rejected';
      readonly reason: RestoreReason;
      /** For people; names files, no paths. */
      readonly why: string;
      /** The segment whose page did not hold. */
      readonly damagedSegment?: Segment | undefined;
    };

const rejected = (reason: RestoreReason, why: string, damagedSegment?: Segment) =>
  ({ kind: 'rejected', reason, why, damagedSegment }) as const;

/** @throws request_cancelled; everything else is an outcome */
export async function restore<S extends StateValue>(
  entry: IndexEntry,
  context: RestoreContext<S>,
): Promise<ReadBack<S>> {
  const opened = new OpenFiles(context.folder);
  const reservations: StateReservation<S>[] = [];
  try {
    return await readBack(entry, context, opened, reservations);
  } catch (error) {
    const { code, message } = toPlumblineError(error);
    if (code === 'request_cancelled') throw error;
    if (code === 'out_of_memory') return rejected('no_memory', message);
    if (code === 'session_file_invalid') return rejected('checkpoint_damaged', message);
    return rejected('read_failed', error instanceof Error ? error.message : String(error));
  } finally {
    for (const reservation of reservations) reservation.abandon();
    opened.close();
  }
}

/** @param reservations those that are not committed stay in the list */
async function readBack<S extends StateValue>(
  entry: IndexEntry,
  { codecs, segments, fences, checksum, folder, signal }: RestoreContext<S>,
  opened: OpenFiles,
  reservations: StateReservation<S>[],
): Promise<ReadBack<S>> {
  const { header, sections, checksum: known } = entry.file;
  const file = opened.open(folder.checkpointPath(entry.id));
  const found = readCheckpoint(file, checksum);
  if (found.kind !== 'checkpoint' || found.checksum !== known) {
    return rejected('checkpoint_damaged', 'its header is no longer what it was when the folder was read');
  }
  const units: Unit[] = [];
  /** Of the same index as the unit: the segment that it is a page of. */
  const owners: (Segment | undefined)[] = [];
  const section = (name: string, into?: Uint8Array): Uint8Array => {
    const { at, bytes, checksum } = sections.get(name)!;
    const place = into ?? new Uint8Array(bytes);
    units.push({ file, at, bytes: place, checksum });
    owners.push(undefined);
    return place;
  };
  const tails: (() => void)[] = [];
  const parts: { readonly part: CheckpointPart; readonly tokens: Int32Array; reservation: StateReservation<S> }[] = [];
  for (const part of header.parts) {
    const codec = codecs[part.name];
    if (!codec || !fits(part, codec)) return rejected('stamp_mismatch', `its ${part.name} is of another shape`);
    const tokens = new Int32Array(part.tokens);
    const reservation = codec.reserve(tokens);
    reservations.push(reservation);
    parts.push({ part, tokens, reservation });
    section(`${part.name}.fixed`, reservation.fixed);
    const rows = section(`${part.name}.rows`);
    tails.push(() => reservation.setTail(rows));
    const { references } = entry.file.parts.get(part.name)!;
    reservation.pages.forEach((bytes, page) => {
      const word = REFERENCE_WORDS * page;
      const segment = entry.segments[references[word]!]!;
      const { at } = locatePage(segment.file, part.name, references[word + 1]!)!;
      const file = opened.open(folder.segmentPath(segment.id));
      units.push({ file, at, bytes, checksum: references[word + 2]! });
      owners.push(segment);
    });
  }
  const hidden = header.hiddenBytes === 0 ? undefined : new Float32Array(header.hiddenBytes / 4);
  if (hidden) section('hidden', bytesOf(hidden));
  if (sections.has('note')) section('note'); // no part of the state, and damage all the same
  const reading = readUnits(units, checksum, signal);
  try {
    // Meanwhile, on this thread. Whatever happens, nothing is given back while somebody reads into it.
    for (const { part, tokens, reservation } of parts) {
      entry.tokensOf(part.name, tokens);
      reservation.prepare();
    }
  } finally {
    await Promise.allSettled([reading]);
  }
  const bad = await reading;
  if (bad !== undefined) {
    return rejected('checkpoint_damaged', 'a checksum of it does not hold', owners[units.indexOf(bad)]);
  }
  for (const put of tails) put();
  // From here to the end nothing is awaited: no fence can rise between this look and the value.
  if (fences.isFenced(entry.lineage)) return rejected('session_fenced', 'its session failed while it was read');
  reservations.length = 0;
  const [trunk, head] = parts.map(({ reservation }) => reservation.commit());
  parts.forEach(({ part: { name } }, i) => {
    const { references } = entry.file.parts.get(name)!;
    codecs[name]!.identities([trunk, head][i]!).forEach((identity, page) => {
      const segment = entry.segments[references[REFERENCE_WORDS * page]!]!;
      segments.remember(identity, { segment, page: references[REFERENCE_WORDS * page + 1]! });
    });
  });
  const capture: Capture<S> = { kind: header.kind, tokens: parts[0]!.tokens, trunk: trunk!, head, hidden };
  return { kind: 'restored', capture, bytes: units.reduce((sum, { bytes }) => sum + bytes.byteLength, 0) };
}

const fits = (part: CheckpointPart, codec: Pick<CheckpointPart, 'fixedBytes' | 'pageBytes' | 'pageTokens'>): boolean =>
  part.fixedBytes === codec.fixedBytes && part.pageBytes === codec.pageBytes && part.pageTokens === codec.pageTokens;

/** Each file once, all closed at the end. */
class OpenFiles {
  readonly #folder: SessionFolder;
  readonly #files = new Map<string, OpenFile>();

  constructor(folder: SessionFolder) {
    this.#folder = folder;
  }

  open(path: string): OpenFile {
    let file = this.#files.get(path);
    if (!file) this.#files.set(path, (file = this.#folder.files.open(path, 'read')));
    return file;
  }

  close(): void {
    for (const file of this.#files.values()) file.close();
    this.#files.clear();
  }
}
