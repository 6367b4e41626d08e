/**
 * A session folder without a model: what a command needs to look into it, clean it, and carry sessions from and to it.
 *
 * Invariant: fences are read before the index, as a server does it; nothing is restored here.
 */
import { SessionAdmin } from './admin.js';
import { diskFiles, type FileLayer } from './checkpoints/file-layer.js';
import { SessionFolder } from './checkpoints/session-folder.js';
import { CheckpointStore } from './checkpoints/store.js';
import { Containment } from './containment/contain.js';
import { FenceFolder } from './containment/fence-records.js';
import { Fences } from './containment/fences.js';
import { storePlaces } from './places.js';
import { storeAdmin } from './store-admin.js';

export interface OpenedFolder {
  readonly admin: SessionAdmin;
  close(): Promise<void>;
}

/** @throws session_store_locked, session_store_unusable */
export async function openSessionFolder(path: string, files: FileLayer = diskFiles): Promise<OpenedFolder> {
  const folder = await SessionFolder.open(path, files);
  try {
    const fences = new Fences(new FenceFolder(files, folder.fences, folder.staging));
    const store = await CheckpointStore.open<never>({
      folder,
      codecs: NO_CODECS,
      knownGatePolicies: [],
      fences,
      budget: { bytes: Number.MAX_SAFE_INTEGER, leastFreeBytes: 0, bytesPerSecond: 0 },
    });
    const containment = new Containment({ fences, places: storePlaces(store) });
    const admin = new SessionAdmin({ containment, resident: () => [], store: storeAdmin(store) });
    return {
      admin,
      async close() {
        containment.close();
        await fences.idle();
        await store.close();
      },
    };
  } catch (thrown) {
    folder.close();
    throw thrown;
  }
}

/** Nothing is made into a value, or written from one, without a model. */
const NO_CODECS = { trunk: undefined as never };
