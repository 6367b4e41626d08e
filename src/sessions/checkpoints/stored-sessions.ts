/** What a folder holds, told by session, for commands and the API. Nothing of a conversation's text or ids is in it. */
import type { CaptureKind, Lane } from '../types.js';
import type { IndexEntry } from './checkpoint-index.js';
import { laneOf } from './compatibility.js';

export interface StoredSession {
  readonly session: string;
  readonly checkpoints: number;
  /** Tokens of the longest. */
  readonly tokens: number;
  /** Of its checkpoint files, and of the segments that they refer to; a segment of two sessions counts in both. */
  readonly bytes: number;
  readonly lanes: readonly Lane[];
  readonly families: readonly string[];
  /** When the newest was written: milliseconds since 1970. */
  readonly writtenAt: number;
}

export interface StoredCheckpoint {
  readonly id: string;
  readonly kind: CaptureKind;
  readonly lane: Lane;
  readonly family: string;
  readonly tokens: number;
  readonly bytes: number;
  readonly segments: number;
  readonly writtenAt: number;
  readonly gatePolicy: string | undefined;
}

export function describeEntry({ id, kind, length, file, segments }: IndexEntry): StoredCheckpoint {
  const { stamp, writtenAt } = file.header;
  return {
    id,
    kind,
    lane: laneOf(stamp),
    family: stamp.family,
    tokens: length,
    bytes: file.byteLength + segments.reduce((sum, segment) => sum + segment.file.byteLength, 0),
    segments: segments.length,
    writtenAt,
    gatePolicy: stamp.gatePolicy,
  };
}

export function sessionsOf(entries: Iterable<IndexEntry>): StoredSession[] {
  const bySession = new Map<string, IndexEntry[]>();
  for (const entry of entries) bySession.set(entry.session, [...(bySession.get(entry.session) ?? []), entry]);
  return [...bySession].map(([session, own]) => {
    const newest = own.reduce((a, b) => (b.file.header.sequence > a.file.header.sequence ? b : a));
    const segments = new Set(own.flatMap((entry) => entry.segments));
    return {
      session,
      checkpoints: own.length,
      tokens: own.reduce((most, { length }) => Math.max(most, length), 0),
      bytes:
        own.reduce((sum, { file }) => sum + file.byteLength, 0) +
        [...segments].reduce((sum, { file }) => sum + file.byteLength, 0),
      lanes: [...new Set(own.map(({ file }) => laneOf(file.header.stamp)))],
      families: [...new Set(own.map(({ file }) => file.header.stamp.family))],
      writtenAt: newest.file.header.writtenAt,
    };
  });
}
