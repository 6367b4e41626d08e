/**
 * A session folder for a measurement: in the temporary folder of the system, gone afterwards, with every byte counted that
 * goes through it, whoever writes it.
 *
 * Invariants: the count is taken where the bytes go into the file system and knows nothing of what they are, so it can
 * judge what the store says of itself.
 */
import { closeSync, openSync, readSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fastCrc32, fastReader } from '../engine/backends/cpu/index.js';
import type { SequenceState, StateCodecs } from '../engine/model.js';
import { PlumblineError } from '../errors.js';
import { diskFilesWith, type FileLayer } from '../sessions/checkpoints/file-layer.js';
import type { SaveOutcome } from '../sessions/checkpoints/save.js';
import { SessionFolder } from '../sessions/checkpoints/session-folder.js';
import { CheckpointStore, type Candidate } from '../sessions/checkpoints/store.js';
import { NO_FENCES } from '../sessions/fence-view.js';
import type { Capture, StateStamp } from '../sessions/types.js';

export const SESSION = 'bench';
export const STAMP: StateStamp = {
  family: 'bench',
  modelHash: 'made up',
  activationLaw: 'none',
  floatLaw: 'none',
  engineLaw: 'none',
  layoutHash: 'bench',
  lane: 'ar',
  draftHead: false,
};

export interface ScratchStore {
  readonly store: CheckpointStore<SequenceState>;
  /** Bytes written to files of the folder so far. */
  bytesWritten(): number;
  /** Saves and waits. @throws internal_error when it was not stored, with the reason */
  save(capture: Capture<SequenceState>, stamp: StateStamp): Promise<Extract<SaveOutcome, { kind: 'stored' }>>;
  /** Files that a restore reads. */
  filesOf(candidate: Candidate): string[];
}

/** Makes a store, works with it, and takes it away. */
export async function withScratchStore<T>(
  codecs: StateCodecs,
  budgetBytes: number,
  work: (scratch: ScratchStore) => Promise<T>,
): Promise<T> {
  const root = await mkdtemp(join(tmpdir(), 'plumbline-bench-'));
  let written = 0;
  const files = counting(diskFilesWith(fastReader()), (bytes) => (written += bytes));
  try {
    const folder = await SessionFolder.open(join(root, 'sessions'), files);
    const store = await CheckpointStore.open<SequenceState>({
      folder,
      codecs,
      knownGatePolicies: [],
      fences: NO_FENCES,
      budget: { bytes: budgetBytes, leastFreeBytes: 0, bytesPerSecond: 0 },
      checksum: fastCrc32(),
    });
    try {
      return await work({
        store,
        bytesWritten: () => written,
        save: async (capture, stamp) => {
          const lineage = [{ session: SESSION, epoch: 0 }];
          const outcome = await new Promise<SaveOutcome>((resolve) => {
            store.save({ capture, stamp, lineage, session: SESSION }, resolve);
          });
          if (outcome.kind === 'stored') return outcome;
          const { reason, cause } = outcome;
          throw new PlumblineError('internal_error', `a session of the bench was not stored: ${reason}`, { cause });
        },
        filesOf: ({ id }) => {
          const entry = store.entries().find((candidate) => candidate.id === id);
          return [
            folder.checkpointPath(id),
            ...(entry?.segments ?? []).map((segment) => folder.segmentPath(segment.id)),
          ];
        },
      });
    } finally {
      await store.close();
    }
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function counting(files: FileLayer, onWritten: (bytes: number) => void): FileLayer {
  return {
    ...files,
    open(path, mode) {
      const file = files.open(path, mode);
      return {
        byteLength: file.byteLength,
        read: (into, at) => file.read(into, at),
        readAll: (into, at) => file.readAll(into, at),
        readSummed: (into, at, checksum, before) => file.readSummed(into, at, checksum, before),
        writeAll: async (from, at) => {
          await file.writeAll(from, at);
          for (const view of from) onWritten(view.byteLength);
        },
        sync: () => file.sync(),
        close: () => file.close(),
      };
    },
  };
}

const READ_PIECE = 4 * 1024 * 1024;

/** Reads files from start to end in large pieces, and nothing else: what the disk, or the page cache, gives. */
export function readPlainly(
  paths: readonly string[],
  into: Uint8Array,
): { readonly bytes: number; readonly ms: number } {
  const start = performance.now();
  let bytes = 0;
  for (const path of paths) {
    const fd = openSync(path, 'r');
    try {
      for (let at = 0; ;) {
        const place = bytes % into.byteLength;
        const got = readSync(fd, into, place, Math.min(READ_PIECE, into.byteLength - place), at);
        if (got === 0) break;
        at += got;
        bytes += got;
      }
    } finally {
      closeSync(fd);
    }
  }
  return { bytes, ms: performance.now() - start };
}

export function candidateOf({ store }: ScratchStore, prompt: readonly number[]): Candidate {
  const found = store.match(prompt, STAMP);
  if (found.kind === 'candidate') return found.candidate;
  throw new PlumblineError('internal_error', `the store has lost a conversation: ${found.reason}`);
}

export async function restored({ store }: ScratchStore, candidate: Candidate): Promise<Capture<SequenceState>> {
  const outcome = await store.restore(candidate);
  if (outcome.kind === 'restored') return outcome.capture;
  throw new PlumblineError('internal_error', `a conversation did not come back: ${outcome.reason}`);
}
