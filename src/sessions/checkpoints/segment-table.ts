/**
 * The segments of a folder as they are known in memory: where each page lies, who refers to it, and which page objects of
 * living states are on the disk already.
 *
 * Invariants: a segment is counted by the checkpoints that refer to it and by the saves and restores under way; when the
 * last of them lets go its file is no longer needed, and is handed to whoever removes files. A page object is found here
 * only after the segment that holds it has been published, and never again once that segment proved to be damaged.
 */
import type { SegmentFile } from './segment-format.js';

export class Segment {
  readonly id: string;
  readonly file: SegmentFile;
  #holders = 0;
  /** A page of it did not hold: nothing new may refer to it. */
  damaged = false;
  readonly #onUnused: (segment: Segment) => void;

  constructor(file: SegmentFile, onUnused: (segment: Segment) => void) {
    this.id = file.header.id;
    this.file = file;
    this.#onUnused = onUnused;
  }

  get holders(): number {
    return this.#holders;
  }

  retain(): this {
    this.#holders++;
    return this;
  }

  release(): void {
    if (--this.#holders === 0) this.#onUnused(this);
  }
}

export interface PageReference {
  readonly segment: Segment;
  /** Number of the page in its segment. */
  readonly page: number;
}

export class SegmentTable {
  readonly #segments = new Map<string, Segment>();
  readonly #pages = new WeakMap<object, PageReference>();
  #bytes = 0;
  readonly #onUnused: (segment: Segment) => void;

  /** @param onUnused told when nothing refers to a segment any more; it is no longer in the table then */
  constructor(onUnused: (segment: Segment) => void) {
    this.#onUnused = onUnused;
  }

  /** Bytes of all files. */
  get bytes(): number {
    return this.#bytes;
  }

  get size(): number {
    return this.#segments.size;
  }

  values(): IterableIterator<Segment> {
    return this.#segments.values();
  }

  get(id: string): Segment | undefined {
    return this.#segments.get(id);
  }

  /** Adds a segment that nobody refers to yet. */
  add(file: SegmentFile): Segment {
    const segment = new Segment(file, (unused) => {
      this.#remove(unused);
      this.#onUnused(unused);
    });
    this.#segments.set(segment.id, segment);
    this.#bytes += file.byteLength;
    return segment;
  }

  /** Takes segments out that nothing refers to; their files are the caller's. */
  takeUnused(): Segment[] {
    const unused = [...this.#segments.values()].filter(({ holders }) => holders === 0);
    for (const segment of unused) this.#remove(segment);
    return unused;
  }

  /** Where a page object is stored; undefined when it is not, or its segment can no longer be relied on. */
  find(page: object): PageReference | undefined {
    const found = this.#pages.get(page);
    if (found === undefined || found.segment.damaged || this.#segments.get(found.segment.id) !== found.segment) {
      return undefined;
    }
    return found;
  }

  remember(page: object, reference: PageReference): void {
    this.#pages.set(page, reference);
  }

  #remove(segment: Segment): void {
    if (this.#segments.delete(segment.id)) this.#bytes -= segment.file.byteLength;
  }
}
