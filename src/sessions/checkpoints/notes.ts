/**
 * The notes that stored turns of a session carry, read without their states.
 *
 * Invariants: a note counts only under its checksum; only turns that no longer one goes on from are read, because a note
 * speaks for the whole turn.
 */
import type { Checksum } from './checksum.js';
import type { IndexEntry } from './checkpoint-index.js';
import type { SessionFolder } from './session-folder.js';

/** Branches of a session that are read: the newest. They are read while a request waits. */
const MOST_NOTES = 64;

export interface StoredNote {
  readonly note: Uint8Array;
  /** All ids of the turn. */
  readonly tokens: Int32Array;
}

/** @param entries of one session. @returns the oldest first; entries whose note does not hold; how many could not be read */
export function readNotes(
  entries: readonly IndexEntry[],
  folder: SessionFolder,
  checksum: Checksum,
): { readonly notes: readonly StoredNote[]; readonly damaged: readonly IndexEntry[]; readonly failed: number } {
  const notes: StoredNote[] = [];
  const damaged: IndexEntry[] = [];
  let failed = 0;
  const withNote = entries.filter(({ superseded, file }) => !superseded && file.sections.has('note'));
  const newest = withNote.sort((a, b) => a.file.header.sequence - b.file.header.sequence).slice(-MOST_NOTES);
  for (const entry of newest) {
    try {
      const note = readNote(entry, folder, checksum);
      if (note) notes.push({ note, tokens: entry.tokensOf('trunk') });
      else damaged.push(entry);
    } catch {
      failed++; // what the disk does not give now it may give later
    }
  }
  return { notes, damaged, failed };
}

function readNote({ id, file }: IndexEntry, folder: SessionFolder, checksum: Checksum): Uint8Array | undefined {
  const { at, bytes, checksum: stored } = file.sections.get('note')!;
  const opened = folder.files.open(folder.checkpointPath(id), 'read');
  try {
    if (at + bytes > opened.byteLength) return undefined;
    const note = new Uint8Array(bytes);
    opened.read(note, at);
    return checksum(note, 0) === stored ? note : undefined;
  } finally {
    opened.close();
  }
}
