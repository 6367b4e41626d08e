/**
 * A segment: the pages that one save found new, each written once and referred to by every checkpoint that needs it.
 *
 *     frame            which parts the pages are of, how many, their sizes, and the checksum of the table
 *     table            for each page its CRC-32 and the ids of its tokens
 *     pages            one after the other, part after part, as they lie in memory
 *
 * Invariant: header and table are checked when a segment is opened, a page when it is read.
 */
import { z } from 'zod';
import type { Checksum } from './checksum.js';
import { bytesAt, damaged, encodeFrame, readFrame, type Unusable } from './frame.js';
import type { OpenFile } from './file-layer.js';

export const SEGMENT_MAGIC = 'PLUMPAGE';

/** Which of the states of a sequence: the trunk's, or the draft head's. */
export const PART_NAMES = ['trunk', 'head'] as const;
export type PartName = (typeof PART_NAMES)[number];

export const count = z.number().int().nonnegative();
export const word = z.number().int().min(0).max(0xffffffff);
/** File names are made of it. */
export const fileId = z.string().regex(/^[0-9a-f-]{8,64}$/);

const groupSchema = z.strictObject({
  part: z.enum(PART_NAMES),
  pageBytes: count,
  pageTokens: count.min(1),
  pages: count.min(1),
});
const segmentSchema = z.strictObject({
  id: fileId,
  groups: z.array(groupSchema).min(1).max(PART_NAMES.length),
  tableChecksum: word,
});

export type PageGroup = z.infer<typeof groupSchema>;
export type SegmentHeader = z.infer<typeof segmentSchema>;

/** A page of a segment in the making. */
export interface NewPage {
  readonly checksum: number;
  readonly tokens: Int32Array;
}

/** A segment whose header and table hold. */
export interface SegmentFile {
  readonly kind: 'segment';
  readonly header: SegmentHeader;
  /** One for each page, all groups in order. */
  readonly checksums: Uint32Array;
  /** Ids of all pages, in order. */
  readonly tokens: Int32Array;
  /** Where the first page begins. */
  readonly pagesAt: number;
  readonly byteLength: number;
}

const tableBytesOf = (groups: readonly PageGroup[]): number =>
  groups.reduce((sum, { pages, pageTokens }) => sum + pages * 4 * (1 + pageTokens), 0);
const pageBytesOf = (groups: readonly PageGroup[]): number =>
  groups.reduce((sum, { pages, pageBytes }) => sum + pages * pageBytes, 0);

/** Everything before the pages. @param pages in the order of the groups */
export function encodeSegmentHead(
  id: string,
  groups: readonly PageGroup[],
  pages: readonly NewPage[],
  checksum: Checksum,
): { readonly frame: Uint8Array; readonly table: Uint8Array; readonly pageBytes: number; readonly file: SegmentFile } {
  const table = new Uint8Array(tableBytesOf(groups));
  const checksums = new Uint32Array(pages.length);
  const tokens = new Int32Array(pages.reduce((sum, page) => sum + page.tokens.length, 0));
  let at = 0;
  let token = 0;
  pages.forEach((page, index) => {
    checksums[index] = page.checksum;
    tokens.set(page.tokens, token);
    token += page.tokens.length;
    table.set(bytesOf(checksums.subarray(index, index + 1)), at);
    table.set(bytesOf(page.tokens), at + 4);
    at += 4 + 4 * page.tokens.length;
  });
  const header: SegmentHeader = { id, groups: [...groups], tableChecksum: checksum(table, 0) };
  const frame = encodeFrame(SEGMENT_MAGIC, header, checksum);
  const pagesAt = frame.byteLength + table.byteLength;
  const pageBytes = pageBytesOf(groups);
  return {
    frame,
    table,
    pageBytes,
    file: { kind: 'segment', header, checksums, tokens, pagesAt, byteLength: pagesAt + pageBytes },
  };
}

/** Opens a segment: header, table and length, not the pages. Throws what reading throws. */
export function readSegment(file: OpenFile, checksum: Checksum): SegmentFile | Unusable {
  const frame = readFrame(file, SEGMENT_MAGIC, checksum);
  if (frame.kind !== 'frame') return frame;
  const parsed = segmentSchema.safeParse(frame.header);
  if (!parsed.success) return damaged('its header is not that of a segment');
  const header = parsed.data;
  const tableBytes = tableBytesOf(header.groups);
  const pagesAt = frame.end + tableBytes;
  const byteLength = pagesAt + pageBytesOf(header.groups);
  if (byteLength !== file.byteLength) return damaged(`it has ${file.byteLength} bytes instead of ${byteLength}`);
  const table = bytesAt(file, frame.head, frame.end, tableBytes);
  if (checksum(table, 0) !== header.tableChecksum) return damaged('the checksum of its table does not hold');
  const pages = header.groups.reduce((sum, group) => sum + group.pages, 0);
  const words = new Int32Array(table.buffer);
  const checksums = new Uint32Array(pages);
  const tokens = new Int32Array(words.length - pages);
  let [page, at, token] = [0, 0, 0];
  for (const group of header.groups) {
    for (let i = 0; i < group.pages; i++) {
      checksums[page++] = words[at]!;
      tokens.set(words.subarray(at + 1, at + 1 + group.pageTokens), token);
      at += 1 + group.pageTokens;
      token += group.pageTokens;
    }
  }
  return { kind: 'segment', header, checksums, tokens, pagesAt, byteLength };
}

/** Where a page lies in its file and its tokens among those of the segment; undefined when the part has no such page. */
export function locatePage(
  { header, pagesAt }: SegmentFile,
  part: PartName,
  page: number,
): { readonly at: number; readonly bytes: number; readonly token: number; readonly tokens: number } | undefined {
  let [first, at, token] = [0, pagesAt, 0];
  for (const group of header.groups) {
    const index = page - first;
    if (index >= 0 && index < group.pages) {
      if (group.part !== part) return undefined;
      const { pageBytes: bytes, pageTokens: tokens } = group;
      return { at: at + index * bytes, bytes, token: token + index * tokens, tokens };
    }
    first += group.pages;
    at += group.pages * group.pageBytes;
    token += group.pages * group.pageTokens;
  }
  return undefined;
}

/** The bytes of a typed array, as they lie in memory. */
export function bytesOf(array: Int32Array | Uint32Array | Float32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
