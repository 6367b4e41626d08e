/**
 * A checkpoint: one capture of a session, self-describing. It holds what a resume needs and no other checkpoint has; full
 * pages it names by segment and number.
 *
 *     frame               what it is of: stamp, lane, lineage, sizes, segments, and a table of the sections
 *     trunk.pages         [⌊n / pageTokens⌋][3] uint32: index into `segments`, page there, the page's CRC-32
 *     trunk.tokens        [n mod pageTokens] int32: ids behind the full pages
 *     head.pages, head.tokens   the same of the draft head's state of n - 1 rows; only with one
 *     trunk.rows, head.rows     the rows of the last, partly filled page
 *     hidden              float32: the stream of token n - 1; only in the lane that needs it
 *     note                bytes that mean nothing here: what whoever made the capture wants to know of it; may be missing
 *     trunk.fixed, head.fixed   the fixed slab
 *
 * Sections follow each other without a gap, in this order, to the end of the file; each has a CRC-32.
 *
 * Invariants: a header says everything about its file, so that every byte is either checked or one too many; what older
 * writers did not know may be missing: the lane (then it counts as the speculative one), the gate policy, the lineage (then
 * it counts as the session's own, at epoch 0).
 */
import { z } from 'zod';
import { PlumblineError } from '../../errors.js';
import type { Lineage } from '../types.js';
import type { Checksum } from './checksum.js';
import { bytesAt, damaged, encodeFrame, readFrame, type Unusable } from './frame.js';
import type { OpenFile } from './file-layer.js';
import { count, fileId, locatePage, PART_NAMES, word, type PartName, type SegmentFile } from './segment-format.js';

export const CHECKPOINT_MAGIC = 'PLUMSTAT';
/** Words of a page reference. */
export const REFERENCE_WORDS = 3;

const sessionName = z.string().min(1).max(1024);
const name = z.string().max(1024);
const partSchema = z.strictObject({
  name: z.enum(PART_NAMES),
  tokens: count,
  fixedBytes: count,
  pageBytes: count,
  pageTokens: count.min(1),
  tailBytes: count,
});
const headerSchema = z.strictObject({
  kind: z.enum(['chunk', 'prompt', 'turn']),
  session: sessionName,
  lineage: z
    .array(z.strictObject({ session: sessionName, epoch: count }))
    .min(1)
    .optional(),
  /** Ascending over the life of a folder: which of two is the newer, whatever the clock says. */
  sequence: count,
  /** Milliseconds since 1970, for people. */
  writtenAt: z.number(),
  stamp: z.strictObject({
    family: name,
    modelHash: name,
    activationLaw: name,
    floatLaw: name,
    engineLaw: name,
    layoutHash: name,
    lane: z.enum(['ar', 'mtp']).optional(),
    gatePolicy: name.optional(),
    draftHead: z.boolean(),
  }),
  tokens: count.min(1),
  parts: z.array(partSchema).min(1).max(PART_NAMES.length),
  hiddenBytes: count,
  noteBytes: count.min(1).optional(),
  segments: z.array(z.strictObject({ id: fileId, tableChecksum: word })),
  sections: z.array(z.strictObject({ name, bytes: count, checksum: word })),
});

export type CheckpointHeader = z.infer<typeof headerSchema>;
export type CheckpointPart = z.infer<typeof partSchema>;

export interface SectionPlace {
  readonly at: number;
  readonly bytes: number;
  readonly checksum: number;
}

/** What an index needs of one part. */
export interface PartIndex {
  /** [full pages][3] */
  readonly references: Uint32Array;
  /** Ids behind the full pages. */
  readonly tailTokens: Int32Array;
}

/** A checkpoint whose header and index sections hold. */
export interface CheckpointFile {
  readonly kind: 'checkpoint';
  readonly header: CheckpointHeader;
  readonly lineage: Lineage;
  /** Of the frame: two files of equal checksum say the same of themselves. */
  readonly checksum: number;
  readonly sections: ReadonlyMap<string, SectionPlace>;
  readonly parts: ReadonlyMap<PartName, PartIndex>;
  readonly byteLength: number;
}

/** A section's name and what it must have; contents where they are given. */
interface SectionPlan {
  readonly name: string;
  readonly bytes: number;
}

/** The sections of a checkpoint, from the sizes that its header gives. */
export function sectionPlan({
  parts,
  hiddenBytes,
  noteBytes,
}: Pick<CheckpointHeader, 'parts' | 'hiddenBytes' | 'noteBytes'>): SectionPlan[] {
  const full = ({ tokens, pageTokens }: CheckpointPart): number => Math.floor(tokens / pageTokens);
  return [
    ...parts.flatMap((part) => [
      { name: `${part.name}.pages`, bytes: 4 * REFERENCE_WORDS * full(part) },
      { name: `${part.name}.tokens`, bytes: 4 * (part.tokens % part.pageTokens) },
    ]),
    ...parts.map((part) => ({ name: `${part.name}.rows`, bytes: part.tailBytes })),
    { name: 'hidden', bytes: hiddenBytes },
    ...(noteBytes === undefined ? [] : [{ name: 'note', bytes: noteBytes }]),
    ...parts.map((part) => ({ name: `${part.name}.fixed`, bytes: part.fixedBytes })),
  ];
}

/**
 * A checkpoint in the making: the bytes of its head, and what reading it will find.
 * @param contents the sizes of the sections in the order of the plan; their checksums
 */
export function encodeCheckpoint(
  header: Omit<CheckpointHeader, 'sections'>,
  contents: readonly { readonly byteLength: number }[],
  checksums: readonly number[],
  parts: ReadonlyMap<PartName, PartIndex>,
  checksum: Checksum,
): { readonly head: Uint8Array; readonly file: CheckpointFile } {
  const whole: CheckpointHeader = {
    ...header,
    sections: sectionPlan(header).map(({ name }, i) => ({
      name,
      bytes: contents[i]!.byteLength,
      checksum: checksums[i]!,
    })),
  };
  const why = disagreement(whole);
  if (why !== undefined) throw new PlumblineError('internal_error', `a checkpoint was to be written, but ${why}`);
  const head = encodeFrame(CHECKPOINT_MAGIC, whole, checksum);
  const { sections, end } = placesOf(whole, head.byteLength);
  const stored = new DataView(head.buffer).getUint32(16, true);
  return {
    head,
    file: {
      kind: 'checkpoint',
      header: whole,
      lineage: whole.lineage ?? [{ session: whole.session, epoch: 0 }],
      checksum: stored,
      sections,
      parts,
      byteLength: end,
    },
  };
}

/** Opens a checkpoint: header, index sections and length, not the state itself. Throws what reading throws. */
export function readCheckpoint(file: OpenFile, checksum: Checksum): CheckpointFile | Unusable {
  const frame = readFrame(file, CHECKPOINT_MAGIC, checksum);
  if (frame.kind !== 'frame') return frame;
  const parsed = headerSchema.safeParse(frame.header);
  if (!parsed.success) return damaged('its header is not that of a checkpoint');
  const header = parsed.data;
  const why = disagreement(header);
  if (why !== undefined) return damaged(why);
  const { sections, end } = placesOf(header, frame.end);
  if (end !== file.byteLength) return damaged(`it has ${file.byteLength} bytes instead of ${end}`);
  const parts = new Map<PartName, PartIndex>();
  for (const { name } of header.parts) {
    const [references, tailTokens] = [`${name}.pages`, `${name}.tokens`].map((section) => {
      const place = sections.get(section)!;
      const bytes = bytesAt(file, frame.head, place.at, place.bytes);
      return checksum(bytes, 0) === place.checksum ? bytes : undefined;
    });
    if (!references || !tailTokens) return damaged(`the checksum of the index of its ${name} does not hold`);
    parts.set(name, {
      references: new Uint32Array(references.buffer),
      tailTokens: new Int32Array(tailTokens.buffer),
    });
  }
  return {
    kind: 'checkpoint',
    header,
    lineage: header.lineage ?? [{ session: header.session, epoch: 0 }],
    checksum: frame.checksum,
    sections,
    parts,
    byteLength: end,
  };
}

function placesOf({ sections }: CheckpointHeader, from: number) {
  const places = new Map<string, SectionPlace>();
  let end = from;
  for (const { name, bytes, checksum } of sections) {
    places.set(name, { at: end, bytes, checksum });
    end += bytes;
  }
  return { sections: places, end };
}

/** In what a header contradicts itself; undefined when it does not. */
function disagreement(header: CheckpointHeader): string | undefined {
  const [trunk, head, ...more] = header.parts;
  if (trunk?.name !== 'trunk' || trunk.tokens !== header.tokens) return 'its trunk is not of its tokens';
  if (more.length > 0 || (head && (head.name !== 'head' || head.tokens !== header.tokens - 1))) {
    return 'its draft head is not one token behind its trunk';
  }
  if (header.lineage && header.lineage.at(-1)?.session !== header.session) return 'its lineage ends in another session';
  if (header.hiddenBytes % 4 !== 0) return 'its hidden stream is no row of float32';
  const plan = sectionPlan(header);
  const agrees =
    plan.length === header.sections.length &&
    plan.every(({ name, bytes }, i) => header.sections[i]!.name === name && header.sections[i]!.bytes === bytes);
  return agrees ? undefined : 'its sections are not of the sizes that it gives';
}

/** Why a checkpoint's references do not fit the segments they name; undefined when they do. */
export function referenceFault(
  { header, parts }: CheckpointFile,
  segments: readonly (SegmentFile | undefined)[],
): string | undefined {
  for (const [index, { tableChecksum }] of header.segments.entries()) {
    const segment = segments[index];
    if (segment === undefined) return 'a segment that it needs is missing';
    if (segment.header.tableChecksum !== tableChecksum) return 'a segment that it needs holds other pages';
  }
  for (const { name, pageBytes, pageTokens } of header.parts) {
    const { references } = parts.get(name)!;
    for (let i = 0; i < references.length; i += REFERENCE_WORDS) {
      const segment = segments[references[i]!];
      const page = references[i + 1]!;
      const place = segment && locatePage(segment, name, page);
      if (place?.bytes !== pageBytes || place.tokens !== pageTokens) return 'it refers to a page that does not exist';
      if (segment!.checksums[page] !== references[i + 2]) return 'a page that it needs was written anew';
    }
  }
  return undefined;
}
