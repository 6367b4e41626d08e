/**
 * The session folder of a server, from its options: first the folder with its lock, so that the fences in it can be read,
 * then the store, which must know them.
 *
 * Invariant: a folder that was opened is closed by the store; whoever opens no store closes the folder.
 */
import { resolve } from 'node:path';
import type { Options } from '../config.js';
import { fastCrc32, fastReader } from '../engine/backends/cpu/index.js';
import type { LanguageModel, SequenceState } from '../engine/model.js';
import type { Log } from '../observe/log.js';
import { diskFilesWith, type FileLayer } from '../sessions/checkpoints/file-layer.js';
import { SessionFolder } from '../sessions/checkpoints/session-folder.js';
import { CheckpointStore } from '../sessions/checkpoints/store.js';
import type { FenceView } from '../sessions/fence-view.js';

const MIB = 2 ** 20;

/** The folder of --session-dir, locked; undefined without one. @throws session_store_locked, session_store_unusable */
export async function openSessionFolder(
  { sessions, sessionDir }: Options,
  files: FileLayer = diskFilesWith(fastReader()),
): Promise<SessionFolder | undefined> {
  if (sessions === 'off' || sessionDir === undefined) return undefined;
  return SessionFolder.open(resolve(sessionDir), files);
}

/**
 * The store over a folder whose fences are loaded; undefined when the states of the model cannot be written down.
 * @throws session_store_unusable, request_cancelled; the folder is then still the caller's
 */
export async function openCheckpointStore(
  folder: SessionFolder,
  { stateCodecs: codecs, stateIdentity }: LanguageModel,
  { sessionDiskMib, sessionMinFreeMib, sessionWriteMibS }: Options,
  fences: FenceView,
  log?: Log,
  signal?: AbortSignal,
): Promise<CheckpointStore<SequenceState> | undefined> {
  if (codecs === undefined || stateIdentity === undefined) return undefined;
  return CheckpointStore.open<SequenceState>({
    folder,
    codecs,
    knownGatePolicies: stateIdentity.knownGatePolicies,
    fences,
    budget: {
      bytes: sessionDiskMib * MIB,
      leastFreeBytes: sessionMinFreeMib * MIB,
      bytesPerSecond: sessionWriteMibS * MIB,
    },
    checksum: fastCrc32(),
    log,
    signal,
  });
}
