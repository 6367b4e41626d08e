/**
 * What one capture needs on the disk: which of its pages are there already, which are new, and the bytes of its files.
 *
 * Invariants: nothing is written here and no table changed; the plan holds the segments that it relies on until it is
 * released; checksums are taken from the memory of the values, before any of it goes through a file system.
 */
import { PlumblineError } from '../../errors.js';
import type { Capture, CaptureKind, Lineage, StateStamp, StateValue } from '../types.js';
import {
  encodeCheckpoint,
  REFERENCE_WORDS,
  type CheckpointFile,
  type CheckpointPart,
  type PartIndex,
} from './checkpoint-format.js';
import type { ExportedState, FullPage, StateCodec } from './codec.js';
import type { Checksum } from './checksum.js';
import type { Segment, SegmentTable } from './segment-table.js';
import { bytesOf, encodeSegmentHead, type PageGroup, type PartName, type SegmentFile } from './segment-format.js';
import { checksumsOf } from './transfer.js';

export interface Codecs<S> {
  readonly trunk: StateCodec<S>;
  readonly head?: StateCodec<S> | undefined;
}

/** A capture and what it belongs to. */
export interface SaveRequest<S extends StateValue> {
  readonly capture: Capture<S>;
  readonly stamp: StateStamp;
  readonly lineage: Lineage;
  readonly session: string;
  /** Asked when the capture is written: bytes that are stored with it, and mean nothing here. */
  readonly note?: (() => Uint8Array | undefined) | undefined;
}

/** Bytes of a save by what they are. */
export interface SavedBytes {
  /** Full pages that were not there yet. */
  readonly pages: number;
  /** Their ids and checksums. */
  readonly records: number;
  /** The fixed slabs. */
  readonly fixed: number;
  /** Headers, references, rows of partly filled pages, the hidden stream, the note. */
  readonly overhead: number;
}

export interface SavePlan {
  readonly kind: CaptureKind;
  /** Present when there are new pages. */
  readonly segment?: { readonly views: readonly Uint8Array[]; readonly file: SegmentFile } | undefined;
  /** The new pages, in the order of the segment. */
  readonly newPages: readonly FullPage[];
  readonly checkpoint: { readonly views: readonly Uint8Array[]; readonly file: CheckpointFile };
  /** In the order of the checkpoint's references; the new segment is not among them, but comes last. */
  readonly reused: readonly Segment[];
  readonly bytes: SavedBytes;
  /** Lets go of the reused segments. */
  release(): void;
}

export interface PlanContext<S extends StateValue> {
  readonly codecs: Codecs<S>;
  readonly segments: SegmentTable;
  readonly checksum: Checksum;
  readonly sequence: number;
  /** Name of a new segment. */
  readonly segmentId: string;
  readonly writtenAt: number;
  readonly signal: AbortSignal | undefined;
}

interface Part {
  readonly name: PartName;
  readonly codec: Pick<StateCodec<unknown>, 'fixedBytes' | 'pageBytes' | 'pageTokens'>;
  readonly state: ExportedState;
}

/** @throws request_cancelled, and internal_error for a capture that contradicts itself */
export async function planSave<S extends StateValue>(
  { capture, stamp, lineage, session, note: makeNote }: SaveRequest<S>,
  context: PlanContext<S>,
): Promise<SavePlan> {
  const { segments, checksum, signal } = context;
  const parts = exportParts(capture, context.codecs);
  const reused = new Map<Segment, number>();
  try {
    const found = parts.map(({ state }) => state.pages.map(({ identity }) => segments.find(identity)));
    for (const { segment } of found.flat().filter((reference) => reference !== undefined)) {
      if (!reused.has(segment)) reused.set(segment.retain(), reused.size);
    }
    const fresh = parts.map(({ state }, part) => state.pages.filter((_, page) => found[part]![page] === undefined));
    const newPages = fresh.flat();
    const pageChecksums = await checksumsOf(
      newPages.map(({ bytes }) => bytes),
      checksum,
      signal,
    );
    const groups = parts.flatMap(({ name, codec: { pageBytes, pageTokens } }, part): PageGroup[] =>
      fresh[part]!.length === 0 ? [] : [{ part: name, pageBytes, pageTokens, pages: fresh[part]!.length }],
    );
    const records = newPages.map(({ tokens }, i) => ({ tokens, checksum: pageChecksums[i]! }));
    const segment = groups.length === 0 ? undefined : encodeSegmentHead(context.segmentId, groups, records, checksum);

    let freshPage = 0;
    const indexes = new Map<PartName, PartIndex>();
    parts.forEach(({ name, state }, part) => {
      const references = new Uint32Array(REFERENCE_WORDS * state.pages.length);
      found[part]!.forEach((reference, page) => {
        const words = reference
          ? [reused.get(reference.segment)!, reference.page, reference.segment.file.checksums[reference.page]!]
          : [reused.size, freshPage, pageChecksums[freshPage]!];
        if (!reference) freshPage++;
        references.set(words, REFERENCE_WORDS * page);
      });
      indexes.set(name, { references, tailTokens: state.tailTokens });
    });
    const made = makeNote?.();
    const note = made !== undefined && made.byteLength > 0 ? made : undefined;
    const contents = [
      ...parts.flatMap(({ name }) => {
        const { references, tailTokens } = indexes.get(name)!;
        return [bytesOf(references), bytesOf(tailTokens)];
      }),
      ...parts.map(({ state }) => state.tail),
      capture.hidden === undefined ? new Uint8Array(0) : bytesOf(capture.hidden),
      ...(note ? [note] : []),
      ...parts.map(({ state }) => state.fixed),
    ];
    const { head, file } = encodeCheckpoint(
      {
        kind: capture.kind,
        session,
        lineage: lineage.map(({ session, epoch }) => ({ session, epoch })),
        sequence: context.sequence,
        writtenAt: context.writtenAt,
        stamp: { ...stamp },
        tokens: capture.tokens.length,
        parts: parts.map(({ name, codec, state }): CheckpointPart => ({
          name,
          tokens: state.length,
          fixedBytes: codec.fixedBytes,
          pageBytes: codec.pageBytes,
          pageTokens: codec.pageTokens,
          tailBytes: state.tail.byteLength,
        })),
        hiddenBytes: capture.hidden?.byteLength ?? 0,
        ...(note && { noteBytes: note.byteLength }),
        segments: [...[...reused.keys()].map(({ file }) => file), ...(segment ? [segment.file] : [])].map(
          ({ header }) => ({ id: header.id, tableChecksum: header.tableChecksum }),
        ),
      },
      contents,
      await checksumsOf(contents, checksum, signal),
      indexes,
      checksum,
    );
    const fixed = parts.reduce((sum, { state }) => sum + state.fixed.byteLength, 0);
    return {
      kind: capture.kind,
      segment: segment && {
        views: [segment.frame, segment.table, ...newPages.map(({ bytes }) => bytes)],
        file: segment.file,
      },
      newPages,
      checkpoint: { views: [head, ...contents], file },
      reused: [...reused.keys()],
      bytes: {
        pages: segment?.pageBytes ?? 0,
        records: segment?.table.byteLength ?? 0,
        fixed,
        overhead: (segment?.frame.byteLength ?? 0) + file.byteLength - fixed,
      },
      release: () => {
        for (const held of reused.keys()) held.release();
      },
    };
  } catch (error) {
    for (const held of reused.keys()) held.release();
    throw error;
  }
}

function exportParts<S extends StateValue>({ tokens, trunk, head }: Capture<S>, codecs: Codecs<S>): Part[] {
  const parts: Part[] = [{ name: 'trunk', codec: codecs.trunk, state: codecs.trunk.export(trunk) }];
  if (head !== undefined) {
    if (!codecs.head) throw new PlumblineError('internal_error', 'a capture has a draft head, and the model has none');
    parts.push({ name: 'head', codec: codecs.head, state: codecs.head.export(head) });
  }
  const ids = parts[0]!.state;
  const last = ids.tailTokens.length > 0 ? ids.tailTokens : ids.pages.at(-1)?.tokens;
  if (tokens.length !== ids.length || tokens.at(-1) !== last?.at(-1)) {
    throw new PlumblineError('internal_error', 'a capture names other tokens than its state was made of');
  }
  return parts;
}
