/** Checkpoint stores over temporary folders, for tests. */
import type { TestContext } from 'node:test';
import type { SequenceState } from '../../src/engine/model.js';
import type { FileLayer } from '../../src/sessions/checkpoints/file-layer.js';
import type { SaveOutcome } from '../../src/sessions/checkpoints/save.js';
import { SessionFolder } from '../../src/sessions/checkpoints/session-folder.js';
import { CheckpointStore, type CheckpointStoreOptions } from '../../src/sessions/checkpoints/store.js';
import { NO_FENCES, type FenceView } from '../../src/sessions/fence-view.js';
import type { Capture, Lineage, StateStamp } from '../../src/sessions/types.js';
import { KNOWN_POLICIES, STAMP, type StateHome } from './session-states.js';

export type TestStore = CheckpointStore<SequenceState>;

export const ROOMY = { bytes: 1 << 30, leastFreeBytes: 0, bytesPerSecond: 0 };

export interface StoreOptions extends Partial<CheckpointStoreOptions<SequenceState>> {
  readonly files?: FileLayer | undefined;
}

/** Opens the store of a folder; closed at the end of the test if it is not before. */
export async function openStore(
  t: TestContext | undefined,
  path: string,
  home: StateHome,
  { files, ...options }: StoreOptions = {},
): Promise<TestStore> {
  const folder = await SessionFolder.open(path, files);
  try {
    const store = await CheckpointStore.open<SequenceState>({
      folder,
      codecs: home.codecs,
      knownGatePolicies: KNOWN_POLICIES,
      fences: NO_FENCES,
      budget: ROOMY,
      ...options,
    });
    t?.after(() => store.close());
    return store;
  } catch (error) {
    folder.close();
    throw error;
  }
}

/** Fences of which only this is known. */
export function fencesOf(isFenced: FenceView['isFenced']): FenceView {
  return { ...NO_FENCES, isFenced, mayPublish: (lineage) => !isFenced(lineage) };
}

export interface SaveSpec {
  readonly session?: string;
  readonly stamp?: StateStamp;
  readonly lineage?: Lineage;
  readonly note?: Uint8Array;
}

/** Saves and waits for what becomes of it. */
export function saved(
  store: TestStore,
  capture: Capture<SequenceState>,
  { session = 'one', stamp = STAMP, lineage = [{ session, epoch: 0 }], note }: SaveSpec = {},
): Promise<SaveOutcome> {
  return new Promise((resolve) => store.save({ capture, stamp, lineage, session, note: () => note }, resolve));
}
