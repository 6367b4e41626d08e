/**
 * The sessions of a served model, put together from the options: what is kept in memory and on disk, whom a request belongs
 * to, what happens to a session whose row of logits was invalid, and what /health tells of it.
 *
 * Invariants: fences are read before the folder's index; `close` comes before the model is closed, writes what waits within a
 * bound and gives every kept state back; where no sessions are kept, the reason is among the declined paths.
 */
import { resolve } from 'node:path';
import { CommittedTurns } from '../chat/history-splice.js';
import type { Options } from '../config.js';
import { fastCrc32, fastReader } from '../engine/backends/cpu/index.js';
import type { LanguageModel, SequenceState } from '../engine/model.js';
import type { LoadedModel } from '../families/load.js';
import { laneOf } from '../generate/choose-sequence.js';
import type { Log } from '../observe/log.js';
import type { ContainmentFigures } from '../observe/metrics.js';
import { Sessions, type SessionFailure } from '../schedule/session-turn.js';
import { SessionAdmin } from '../sessions/admin.js';
import { Bank } from '../sessions/bank.js';
import { zlibChecksum } from '../sessions/checkpoints/checksum.js';
import { diskFilesWith, type FileLayer } from '../sessions/checkpoints/file-layer.js';
import { SessionFolder } from '../sessions/checkpoints/session-folder.js';
import { obstacle } from '../sessions/checkpoints/compatibility.js';
import { CheckpointStore } from '../sessions/checkpoints/store.js';
import { Containment, type ContainmentPoint } from '../sessions/containment/contain.js';
import { FenceFolder } from '../sessions/containment/fence-records.js';
import { Fences } from '../sessions/containment/fences.js';
import type { ContainmentReceipt } from '../sessions/containment/receipts.js';
import { bankPlace, conversationPlace, storePlaces } from '../sessions/places.js';
import { residentSessions } from '../sessions/resident-sessions.js';
import type { TextPrefixesOptions } from '../sessions/text-prefixes.js';
import { storeAdmin } from '../sessions/store-admin.js';
import type { Lane, StateStamp } from '../sessions/types.js';
import type { DeclinedPath, SessionsHealth } from './health.js';
import { ModelContents } from './model-contents.js';

export interface OpenedSessions {
  /** What the scheduler asks; absent when no sessions are kept. */
  readonly turns?: Sessions | undefined;
  readonly bank?: Bank<SequenceState> | undefined;
  readonly store?: CheckpointStore<SequenceState> | undefined;
  readonly containment?: Containment | undefined;
  readonly admin?: SessionAdmin | undefined;
  readonly committed: CommittedTurns;
  /** What is kept, for those who look for it by its text; absent when no sessions are kept. */
  readonly kept?: Pick<TextPrefixesOptions, 'stored' | 'reach'> | undefined;
  health(): SessionsHealth;
  figures(): ContainmentFigures | undefined;
  declined(): readonly DeclinedPath[];
  /** Notes in the folder's lock file where this process answers. */
  tellAddress(url: string): Promise<void>;
  close(): Promise<void>;
}

/** Told of failures, and what only tests can reach. */
export interface SessionSeams {
  readonly log?: Log | undefined;
  readonly onContainment?: ((receipt: ContainmentReceipt) => void) | undefined;
  readonly files?: FileLayer | undefined;
  readonly containmentPoint?: ((point: ContainmentPoint) => void | Promise<void>) | undefined;
}

const MIB = 2 ** 20;
/** What waits to be written when the server stops gets this long. */
const FLUSH_MS = 10_000;

/**
 * @param promptFormat names tokenizer and template: answers are put back only under the one that they were given under
 * @throws session_store_locked, session_store_unusable; nothing stays open then
 */
export async function openSessions(
  { model, memory, weightFiles }: LoadedModel,
  options: Options,
  seams: SessionSeams = {},
  promptFormat = '',
): Promise<OpenedSessions> {
  const { stateIdentity } = model;
  if (options.sessions === 'off' || stateIdentity === undefined) {
    const committed = new CommittedTurns();
    const reason = options.sessions === 'off' ? 'switched off' : 'the states of this model have no identity';
    return {
      committed,
      health: () => ({ mode: 'off' }),
      figures: () => undefined,
      declined: () => [{ path: 'sessions', reason }],
      tellAddress: async () => undefined,
      close: async () => undefined,
    };
  }
  const { fences, store } = await openStore(model, memory.waitingStateBytes, options, seams);
  const bank = memory.keptStateBytes > 0 ? new Bank<SequenceState>(memory.keptStateBytes, fences) : undefined;
  const contents =
    store && (await ModelContents.open(weightFiles, store.folder, fastCrc32() ?? zlibChecksum, seams.log));
  const stamp = (lane: Lane): StateStamp => {
    const own = stateIdentity.stamp(lane);
    return contents ? { ...own, modelHash: contents.modelHash(own.modelHash) } : own;
  };
  const diskUsable = (): boolean => contents?.obstacle === undefined && containment.diskUsable;
  const committed = new CommittedTurns({
    format: promptFormat,
    recall: (session) => {
      const mayRead = store !== undefined && diskUsable() && fences.stateOf(session) === 'ready';
      return mayRead ? store.notes(session, [stamp('ar'), stamp('mtp')]) : { notes: [], unreadable: 0 };
    },
  });
  const restores: Record<string, number> = {};
  const turns = new Sessions({
    stamp,
    laneOf: (sampler) => laneOf(model, sampler),
    fences,
    bank,
    disk: store,
    diskUsable,
    mayPersist: (lineage) => fences.mayPersist(lineage),
    contain: (failure) => contain(containment, model, options, failure),
    onRestore: (outcome) => {
      const key = outcome.kind === 'restored' ? outcome.from : outcome.reason;
      restores[key] = (restores[key] ?? 0) + 1;
    },
  });
  const containment: Containment = new Containment({
    fences,
    places: [
      ...(store ? storePlaces(store) : []),
      ...(bank ? [bankPlace(bank)] : []),
      conversationPlace((session) => ({ aliases: turns.conversations.drop(session) + committed.drop(session) })),
    ],
    onReceipt: seams.onContainment,
    onError: (place, error) =>
      seams.log?.error({ place, err: error }, 'state of a failed session could not be dropped'),
    atPoint: seams.containmentPoint,
  });
  const admin = new SessionAdmin({
    model: model.id,
    containment,
    resident: () => (bank ? residentSessions(bank) : []),
    store: store && {
      ...storeAdmin(store),
      async importSession(file) {
        const imported = await store.importSession(file);
        committed.refresh(imported.session);
        return imported;
      },
    },
  });
  return {
    turns,
    bank,
    store,
    containment,
    admin,
    committed,
    kept: keptPrefixes(
      () => stamp('ar'),
      stateIdentity.knownGatePolicies,
      bank,
      store,
      () => containment.diskUsable,
    ),
    health: () => ({
      mode: 'on',
      ram: bank && bankHealth(bank),
      disk: store?.health(),
      containment: containmentHealth(containment, store !== undefined),
      inferred: turns.conversations.size,
      restores,
    }),
    figures: () => containment.counts,
    declined: () => [
      ...(bank ? [] : [{ path: 'sessions in memory', reason: 'there is no memory for them' }]),
      ...(store ? [] : [{ path: 'sessions on disk', reason: 'no --session-dir was given' }]),
      ...(contents?.obstacle === undefined ? [] : [{ path: 'sessions on disk', reason: contents.obstacle }]),
    ],
    tellAddress: async (url) => store?.folder.lock.tellAddress(url),
    async close() {
      containment.close();
      await contents?.close();
      await store?.flush(FLUSH_MS);
      await fences.idle();
      await store?.close();
      bank?.clear();
    },
  };
}

/**
 * What a prompt can begin with: turns and prompts in memory and on the disk. States behind the pieces of a prompt are none:
 * where a piece ends says nothing of the text. Of models whose states are of one lane, the plain one.
 */
function keptPrefixes(
  stamp: () => StateStamp,
  knownGatePolicies: readonly string[],
  bank: Bank<SequenceState> | undefined,
  store: CheckpointStore<SequenceState> | undefined,
  diskUsable: () => boolean,
): Pick<TextPrefixesOptions, 'stored' | 'reach'> {
  const known = new Set(knownGatePolicies);
  const disk = (): typeof store => (diskUsable() ? store : undefined);
  return {
    *stored() {
      for (const { session, lane, capture } of bank?.entries() ?? []) {
        if (lane !== 'ar' || capture.kind === 'chunk') continue;
        yield { identity: capture, session, tokens: () => capture.tokens };
      }
      const wanted = stamp();
      for (const entry of disk()?.entries() ?? []) {
        if (entry.kind === 'chunk' || obstacle(entry.file.header.stamp, wanted, known) !== undefined) continue;
        yield { identity: entry, session: entry.session, tokens: () => entry.tokensOf('trunk') };
      }
    },
    reach(prompt) {
      const inRam = bank?.match(prompt, 'ar', '');
      const onDisk = disk()?.match(prompt, stamp());
      return Math.max(
        inRam?.kind === 'found' ? inRam.entry.capture.tokens.length : 0,
        onDisk?.kind === 'candidate' ? onDisk.candidate.length : 0,
      );
    },
  };
}

async function openStore(
  { stateCodecs, stateIdentity }: LanguageModel,
  waitingBytes: number,
  { sessionDir, sessionDiskMib, sessionMinFreeMib, sessionWriteMibS }: Options,
  { log, files = diskFilesWith(fastReader()) }: SessionSeams,
): Promise<{ readonly fences: Fences; readonly store: CheckpointStore<SequenceState> | undefined }> {
  if (sessionDir === undefined || stateCodecs === undefined || stateIdentity === undefined) {
    return { fences: new Fences(), store: undefined };
  }
  const folder = await SessionFolder.open(resolve(sessionDir), files);
  try {
    const fences = new Fences(new FenceFolder(files, folder.fences, folder.staging));
    const store = await CheckpointStore.open<SequenceState>({
      folder,
      codecs: stateCodecs,
      knownGatePolicies: stateIdentity.knownGatePolicies,
      fences,
      budget: {
        bytes: sessionDiskMib * MIB,
        leastFreeBytes: sessionMinFreeMib * MIB,
        bytesPerSecond: sessionWriteMibS * MIB,
      },
      waitingBytes,
      checksum: fastCrc32(),
      log,
    });
    await forgetFences(fences, store);
    return { fences, store };
  } catch (thrown) {
    folder.close();
    throw thrown;
  }
}

/** Fences that no file needs any more, once the whole folder was seen. A fence that stays harms nobody. */
async function forgetFences(fences: Fences, store: CheckpointStore<SequenceState>): Promise<void> {
  const { unreadable, other_versions: others } = store.health().opened;
  if (unreadable + others > 0) return;
  const named = store.entries().flatMap(({ lineage }) => lineage.map(({ session }) => session));
  await fences.forget(new Set(named)).catch(() => undefined);
}

async function contain(
  containment: Containment,
  model: LanguageModel,
  { draftDepth }: Options,
  { request, session, lane, error, cachedTokens, emittedTokens, stablePrompt }: SessionFailure,
): Promise<void> {
  error.reusedTokens = cachedTokens;
  await containment.contain({
    requestId: request.requestId,
    session: session.id,
    family: model.family,
    lane,
    depth: lane === 'mtp' ? draftDepth : 0,
    census: error.census,
    restoredTokens: cachedTokens,
    emittedTokens,
    prompts: session.source === 'inferred' ? [stablePrompt] : [],
  });
}

function containmentHealth(containment: Containment, hasDisk: boolean): NonNullable<SessionsHealth['containment']> {
  const { fences, counts, owed, diskUsable, receipts } = containment;
  return {
    contained: counts.containments,
    not_ready: fences.notReady.map(({ session, epoch, state }) => ({ session, epoch, state })),
    saves_refused: counts.savesRefused,
    restores_refused: counts.restoresRefused,
    ...(hasDisk && { fence_durable: fences.durable, restores_from_disk: diskUsable }),
    drops_owed: owed,
    receipts: receipts.all,
  };
}

function bankHealth(bank: Bank<SequenceState>): NonNullable<SessionsHealth['ram']> {
  const { budgetBytes, usedBytes, entries, stored, restored, evicted, refusedNoRoom, refusedFenced } = bank.stats();
  return {
    budget_bytes: budgetBytes,
    used_bytes: usedBytes,
    entries,
    stored,
    restored,
    evicted,
    refused_no_room: refusedNoRoom,
    refused_fenced: refusedFenced,
  };
}
