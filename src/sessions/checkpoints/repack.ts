/**
 * A checkpoint and all its pages as two files that need no other: what is written out of a folder, and what is taken in.
 *
 * Invariants: only pages that the checkpoint refers to are carried, so that nothing of another session goes along; every
 * byte is checked on its way; the files have new names and a new place in the order of their folder.
 */
import { PlumblineError } from '../../errors.js';
import type { Checksum } from './checksum.js';
import { encodeCheckpoint, REFERENCE_WORDS, sectionPlan, type CheckpointFile } from './checkpoint-format.js';
import type { OpenFile } from './file-layer.js';
import { bytesOf, encodeSegmentHead, locatePage, type PageGroup, type SegmentFile } from './segment-format.js';

/** A whole checkpoint with its segments, open for reading. */
export interface RepackSource {
  readonly checkpoint: CheckpointFile;
  readonly file: OpenFile;
  /** In the order of the checkpoint's references. */
  readonly segments: readonly { readonly file: OpenFile; readonly segment: SegmentFile }[];
}

export interface Repacked {
  readonly segment?: { readonly file: SegmentFile; bytes(): AsyncGenerator<Uint8Array> } | undefined;
  readonly checkpoint: { readonly file: CheckpointFile; bytes(): AsyncGenerator<Uint8Array> };
}

const PIECE = 4 * 1024 * 1024;

/** @param name of the new segment. Reading the generators throws session_file_invalid at the first byte that does not hold. */
export function repack(
  { checkpoint, file, segments }: RepackSource,
  name: { readonly segmentId: string; readonly sequence: number },
  checksum: Checksum,
): Repacked {
  const { header } = checkpoint;
  const groups: PageGroup[] = [];
  const pages: { file: OpenFile; at: number; bytes: number; checksum: number; tokens: Int32Array }[] = [];
  const parts = new Map(checkpoint.parts);
  for (const { name: part, pageBytes, pageTokens } of header.parts) {
    const { references, tailTokens } = checkpoint.parts.get(part)!;
    const moved = new Uint32Array(references.length);
    for (let i = 0; i < references.length; i += REFERENCE_WORDS) {
      const [number, page, sum] = references.subarray(i) as unknown as [number, number, number];
      const { file, segment } = segments[number]!;
      const { at, bytes, token, tokens } = locatePage(segment, part, page)!;
      moved.set([0, pages.length, sum], i);
      pages.push({ file, at, bytes, checksum: sum, tokens: segment.tokens.subarray(token, token + tokens) });
    }
    parts.set(part, { references: moved, tailTokens });
    const count = references.length / REFERENCE_WORDS;
    if (count > 0) groups.push({ part, pageBytes, pageTokens, pages: count });
  }
  const segment = groups.length === 0 ? undefined : encodeSegmentHead(name.segmentId, groups, pages, checksum);
  const changed = new Map(header.parts.map(({ name }) => [`${name}.pages`, bytesOf(parts.get(name)!.references)]));
  const plan = sectionPlan(header);
  const { head, file: made } = encodeCheckpoint(
    {
      ...header,
      sequence: name.sequence,
      segments: segment ? [{ id: name.segmentId, tableChecksum: segment.file.header.tableChecksum }] : [],
    },
    plan.map(({ bytes }) => ({ byteLength: bytes })),
    plan.map(({ name }) => {
      const bytes = changed.get(name);
      return bytes ? checksum(bytes, 0) : checkpoint.sections.get(name)!.checksum;
    }),
    parts,
    checksum,
  );
  return {
    segment: segment && {
      file: segment.file,
      async *bytes() {
        yield segment.frame;
        yield segment.table;
        for (const page of pages) yield* checked(page, checksum);
      },
    },
    checkpoint: {
      file: made,
      async *bytes() {
        yield head;
        for (const { name } of plan) {
          const bytes = changed.get(name);
          if (bytes) yield bytes;
          else yield* checked({ file, ...checkpoint.sections.get(name)! }, checksum);
        }
      },
    },
  };
}

async function* checked(
  place: { readonly file: OpenFile; readonly at: number; readonly bytes: number; readonly checksum: number },
  checksum: Checksum,
): AsyncGenerator<Uint8Array> {
  let sum = 0;
  for (let done = 0; done < place.bytes; done += PIECE) {
    const piece = new Uint8Array(Math.min(PIECE, place.bytes - done));
    sum = (await place.file.readSummed([piece], place.at + done, checksum, sum))[0]!;
    if (done + piece.byteLength === place.bytes && sum !== place.checksum) break;
    yield piece;
  }
  if (sum !== place.checksum) throw new PlumblineError('session_file_invalid', 'a checksum of it does not hold');
}
