/**
 * A session folder that this process may write: its places, its lock, and names that nothing else has.
 *
 *     plumbline-sessions   says that the folder is one of these
 *     lock            who has the folder
 *     checkpoints/    one file a capture, NAME.state
 *     segments/       pages, shared by checkpoints, NAME.pages
 *     fences/         which sessions may not be restored
 *     staging/        files in the making; nothing in it is ever believed
 *
 * Invariants: staging is emptied when the folder is opened, under the lock, before anything is read; a folder that holds
 * other things and was never one of these is refused, so that nothing of anybody else's is ever taken away.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { PlumblineError } from '../../errors.js';
import { diskFiles, systemCode, type FileLayer } from './file-layer.js';
import { FolderLock, LOCK_NAME } from './lock.js';

const MARKER = 'plumbline-sessions';

export class SessionFolder {
  readonly path: string;
  readonly files: FileLayer;
  readonly lock: FolderLock;
  readonly checkpoints: string;
  readonly segments: string;
  readonly fences: string;
  readonly staging: string;
  /** Files that an earlier process left half-written, taken away on opening. */
  readonly sweptStaging: number;

  private constructor(path: string, files: FileLayer, lock: FolderLock, sweptStaging: number) {
    this.path = path;
    this.files = files;
    this.lock = lock;
    [this.checkpoints, this.segments, this.fences, this.staging] = places(path);
    this.sweptStaging = sweptStaging;
  }

  /**
   * Makes the folder if it is missing, and takes its lock.
   * @throws session_store_locked, session_store_unusable
   */
  static async open(path: string, files: FileLayer = diskFiles): Promise<SessionFolder> {
    let lock: FolderLock | undefined;
    try {
      files.makeFolder(path);
      const names = files.names(path).filter((name) => !name.startsWith(LOCK_NAME));
      if (names.length > 0 && !names.includes(MARKER)) {
        const what =
          modelSessionFolders(files, path).length > 0 ? 'the folders of several models' : 'files of something else';
        throw new PlumblineError(
          'session_store_unusable',
          `the session folder holds ${what}; give a folder that is empty or does not exist, or one that is a single model's`,
          { param: '--session-dir' },
        );
      }
      lock = await FolderLock.take(files, path);
      if (names.length === 0) {
        // Two that found the folder empty have the lock one after the other; the second finds the marker.
        if (!files.names(path).includes(MARKER)) files.open(join(path, MARKER), 'create').close();
      }
      for (const place of places(path)) files.makeFolder(place);
      const [, , , staging] = places(path);
      const left = files.list(staging).map(({ name }) => join(staging, name));
      const locks = files
        .list(path)
        .flatMap(({ name }) => (name.startsWith(`${LOCK_NAME}.`) ? [join(path, name)] : []));
      for (const file of [...left, ...locks]) await files.remove(file);
      return new SessionFolder(path, files, lock, left.length);
    } catch (thrown) {
      lock?.release();
      throw unusable(thrown);
    }
  }

  /** A name that no file has; names sort in the order in which they were given, whatever the clock says. */
  newId(sequence: number): string {
    return `${sequence.toString(16).padStart(12, '0')}-${randomBytes(6).toString('hex')}`;
  }

  checkpointPath(id: string): string {
    return join(this.checkpoints, `${id}.state`);
  }

  segmentPath(id: string): string {
    return join(this.segments, `${id}.pages`);
  }

  stagedCheckpoint(id: string): string {
    return join(this.staging, `${id}.state`);
  }

  stagedSegment(id: string): string {
    return join(this.staging, `${id}.pages`);
  }

  /** Gives the folder back. Nothing may be written any more. */
  close(): void {
    try {
      this.lock.release();
    } catch {
      // A folder that can no longer be written keeps its lock file; the next process finds its owner gone.
    }
  }
}

function places(path: string): [string, string, string, string] {
  return [join(path, 'checkpoints'), join(path, 'segments'), join(path, 'fences'), join(path, 'staging')];
}

function unusable(thrown: unknown): unknown {
  const code = systemCode(thrown);
  if (thrown instanceof PlumblineError || code === undefined) return thrown;
  return new PlumblineError('session_store_unusable', `the session folder cannot be used: ${code}`, {
    param: '--session-dir',
    cause: thrown,
  });
}

/**
 * The folder of one of several models in the one that was given.
 * @throws session_store_unusable when that is a folder of one model itself
 */
export function ownSessionFolder(path: string, model: string, files: FileLayer = diskFiles): string {
  if (!namesIn(files, path).includes(MARKER)) return join(path, modelFolderName(model));
  throw new PlumblineError(
    'session_store_unusable',
    'the session folder is that of one model, and several are served; give one for all of them',
    { param: '--session-dir' },
  );
}

/** The name of a model's own folder where several models keep theirs in one. */
export function modelFolderName(model: string): string {
  return encodeURIComponent(model).replace(/^\.+/, (dots) => '%2E'.repeat(dots.length));
}

/** The session folders of models in a folder that is not itself one. */
export function modelSessionFolders(
  files: FileLayer,
  path: string,
): readonly { readonly name: string; readonly model: string; readonly path: string }[] {
  const names = namesIn(files, path);
  if (names.includes(MARKER)) return [];
  return names.sort().flatMap((name) => {
    const inner = join(path, name);
    return namesIn(files, inner).includes(MARKER) ? [{ name, model: modelOf(name), path: inner }] : [];
  });
}

function modelOf(folderName: string): string {
  try {
    return decodeURIComponent(folderName);
  } catch {
    return folderName; // not named by plumbline
  }
}

function namesIn(files: FileLayer, path: string): string[] {
  try {
    return [...files.names(path)];
  } catch (error) {
    if (systemCode(error) === undefined) throw error;
    return []; // missing, no folder, or not to be read: opening it says so
  }
}
