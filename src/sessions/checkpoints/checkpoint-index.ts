/**
 * The checkpoints of a folder as they are known in memory, and the longest of them that a prompt begins with.
 *
 * Invariants: the index holds no token ids but those that a checkpoint has for itself alone; the others are read through its
 * references into the segments, so their memory grows with what is stored once; a hash only proposes, tokens decide. An entry
 * in the index holds its segments.
 */
import type { CaptureKind, Lineage, RestoreReason, StateStamp } from '../types.js';
import type { CheckpointFile } from './checkpoint-format.js';
import { REFERENCE_WORDS } from './checkpoint-format.js';
import { obstacle, stampKey } from './compatibility.js';
import type { Segment } from './segment-table.js';
import { locatePage, type PartName } from './segment-format.js';

/** One checkpoint. */
export class IndexEntry {
  readonly id: string;
  readonly file: CheckpointFile;
  readonly segments: readonly Segment[];
  /** When it was last restored or written, in ticks of the index. */
  lastUse = 0;
  /** Restores under way or expected; an entry in use is not evicted. */
  users = 0;
  /** The longest entry of the same session and stamp whose tokens this one begins with or has, if it was there first. */
  ancestor: IndexEntry | undefined;
  readonly descendants = new Set<IndexEntry>();

  constructor(id: string, file: CheckpointFile, segments: readonly Segment[]) {
    this.id = id;
    this.file = file;
    this.segments = segments;
  }

  /** Whether a later entry of the same session and stamp begins with the tokens of this one. */
  get superseded(): boolean {
    return this.descendants.size > 0;
  }

  get length(): number {
    return this.file.header.tokens;
  }

  get session(): string {
    return this.file.header.session;
  }

  get kind(): CaptureKind {
    return this.file.header.kind;
  }

  get lineage(): Lineage {
    return this.file.lineage;
  }

  /** Ids of a part's tokens, as a copy. @param tokens filled where it is given */
  tokensOf(name: PartName, tokens?: Int32Array): Int32Array {
    const part = this.file.header.parts.find((candidate) => candidate.name === name)!;
    const { references, tailTokens } = this.file.parts.get(name)!;
    tokens ??= new Int32Array(part.tokens);
    for (let page = 0; page * part.pageTokens + tailTokens.length < part.tokens; page++) {
      const file = this.segments[references[REFERENCE_WORDS * page]!]!.file;
      const { token } = locatePage(file, name, references[REFERENCE_WORDS * page + 1]!)!;
      tokens.set(file.tokens.subarray(token, token + part.pageTokens), page * part.pageTokens);
    }
    tokens.set(tailTokens, part.tokens - tailTokens.length);
    return tokens;
  }
}

/** All entries of one stamp. */
interface Bucket {
  readonly stamp: CheckpointFile['header']['stamp'];
  /** By length, then by the hash of their tokens. */
  readonly lengths: Map<number, Map<number, IndexEntry[]>>;
}

export type IndexMatch =
  | { readonly kind: 'candidate'; readonly entry: IndexEntry }
  | { readonly kind: 'no-match'; readonly reason: RestoreReason };

export class CheckpointIndex {
  readonly #entries = new Map<string, IndexEntry>();
  readonly #hashes = new Map<string, number>();
  readonly #buckets = new Map<string, Bucket>();
  #bytes = 0;
  #clock = 0;

  get size(): number {
    return this.#entries.size;
  }

  /** Bytes of all checkpoint files, segments not counted. */
  get bytes(): number {
    return this.#bytes;
  }

  values(): IterableIterator<IndexEntry> {
    return this.#entries.values();
  }

  get(id: string): IndexEntry | undefined {
    return this.#entries.get(id);
  }

  add(entry: IndexEntry): void {
    for (const segment of entry.segments) segment.retain();
    const hashes = prefixHashes(entry.tokensOf('trunk'));
    const hash = hashes[entry.length]!;
    this.#entries.set(entry.id, entry);
    this.#hashes.set(entry.id, hash);
    this.#bytes += entry.file.byteLength;
    this.touch(entry);
    const { lengths } = this.#bucketOf(entry);
    entry.ancestor = ancestorAmong(lengths, hashes, entry);
    entry.ancestor?.descendants.add(entry);
    const ofLength = at(lengths, entry.length, () => new Map<number, IndexEntry[]>());
    at(ofLength, hash, (): IndexEntry[] => []).push(entry);
  }

  /** Takes an entry out and lets go of its segments. Whether it was there. */
  remove(entry: IndexEntry): boolean {
    if (!this.#entries.delete(entry.id)) return false;
    this.#bytes -= entry.file.byteLength;
    const { lengths } = this.#bucketOf(entry);
    const hashes = lengths.get(entry.length)!;
    const hash = this.#hashes.get(entry.id)!;
    this.#hashes.delete(entry.id);
    const left = hashes.get(hash)!.filter((other) => other !== entry);
    if (left.length > 0) hashes.set(hash, left);
    else hashes.delete(hash);
    if (hashes.size === 0) lengths.delete(entry.length);
    entry.ancestor?.descendants.delete(entry);
    for (const descendant of entry.descendants) {
      descendant.ancestor = entry.ancestor;
      entry.ancestor?.descendants.add(descendant);
    }
    for (const segment of entry.segments) segment.release();
    return true;
  }

  touch(entry: IndexEntry): void {
    entry.lastUse = ++this.#clock;
  }

  /** Other entries that say the same: of the same session, kind, stamp, lineage and tokens. */
  sameAs(entry: IndexEntry): readonly IndexEntry[] {
    const { session, kind, length } = entry;
    const lineage = JSON.stringify(entry.lineage);
    const tokens = entry.tokensOf('trunk');
    const candidates =
      this.#bucketOf(entry)
        .lengths.get(length)
        ?.get(this.#hashes.get(entry.id) ?? -1) ?? [];
    return candidates.filter(
      (other) =>
        other !== entry &&
        other.session === session &&
        other.kind === kind &&
        JSON.stringify(other.lineage) === lineage &&
        startsWith(tokens, other.tokensOf('trunk')),
    );
  }

  /**
   * The longest checkpoint of a compatible stamp whose tokens `tokens` begins with, at least one token being left over; of
   * equal ones the newest. Without one, why those that have the tokens cannot be used: the reason that is nearest to a match.
   */
  match(
    tokens: Int32Array | readonly number[],
    wanted: StateStamp,
    knownGatePolicies: ReadonlySet<string>,
    refuses: (entry: IndexEntry) => RestoreReason | undefined,
  ): IndexMatch {
    const hashes = prefixHashes(tokens);
    let best: IndexEntry | undefined;
    let refused: RestoreReason | undefined;
    for (const { stamp, lengths } of this.#buckets.values()) {
      const unfit = obstacle(stamp, wanted, knownGatePolicies);
      for (const [length, byHash] of lengths) {
        if (length >= tokens.length) continue;
        for (const entry of byHash.get(hashes[length]!) ?? []) {
          const reason = unfit ?? refuses(entry);
          if (reason === undefined ? !isBetter(entry, best) : !saysMore(reason, refused)) continue;
          if (!startsWith(tokens, entry.tokensOf('trunk'))) continue;
          if (reason === undefined) best = entry;
          else refused = reason;
        }
      }
    }
    if (best !== undefined) return { kind: 'candidate', entry: best };
    return { kind: 'no-match', reason: refused ?? 'no_entry' };
  }

  #bucketOf({ file: { header } }: IndexEntry): Bucket {
    return at(this.#buckets, stampKey(header.stamp), () => ({ stamp: header.stamp, lengths: new Map() }));
  }
}

/** The longest entry of the session that a newcomer of these prefix hashes begins with. */
function ancestorAmong(
  lengths: Bucket['lengths'],
  hashes: Uint32Array,
  { session, length }: IndexEntry,
): IndexEntry | undefined {
  let longest: IndexEntry | undefined;
  for (const [candidate, byHash] of lengths) {
    if (candidate > length || candidate <= (longest?.length ?? 0)) continue;
    longest = byHash.get(hashes[candidate]!)?.find((entry) => entry.session === session) ?? longest;
  }
  return longest;
}

const isBetter = (entry: IndexEntry, best: IndexEntry | undefined): boolean =>
  best === undefined ||
  entry.length > best.length ||
  (entry.length === best.length && entry.file.header.sequence > best.file.header.sequence);

/** From the farthest to the nearest: another model, the other lane, another policy, the failed session itself. */
const NEARNESS: readonly RestoreReason[] = [
  'stamp_mismatch',
  'lane_mismatch',
  'gate_policy_mismatch',
  'session_fenced',
];
const saysMore = (reason: RestoreReason, than: RestoreReason | undefined): boolean =>
  than === undefined || NEARNESS.indexOf(reason) > NEARNESS.indexOf(than);

function startsWith(tokens: ArrayLike<number>, prefix: Int32Array): boolean {
  return prefix.every((token, position) => tokens[position] === token);
}

function at<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}

const step = (hash: number, token: number): number => {
  const mixed = Math.imul(hash ^ token, 0x9e3779b1);
  return (mixed ^ (mixed >>> 15)) >>> 0;
};

/** The hash of every prefix, by its length. */
function prefixHashes(tokens: ArrayLike<number>): Uint32Array {
  const hashes = new Uint32Array(tokens.length + 1);
  hashes[0] = 1;
  for (let i = 0; i < tokens.length; i++) hashes[i + 1] = step(hashes[i]!, tokens[i]!);
  return hashes;
}
