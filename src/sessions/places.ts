/**
 * The places where state of a session can lie, as containment drops them.
 *
 * | what | where it lies here | dropped by |
 * |---|---|---|
 * | live state, scratch of a round, drafts | the request's own sequence | the request, before containment begins |
 * | execution buffers | slabs and pages of the state store | released with their values; zeroed before anybody else gets them |
 * | prefixes, whole turns, pins of waiting requests | the bank | `bank` |
 * | names, frontier, kept answers | the table of conversations | `conversations` |
 * | saves that wait or are being written | the save queue | `saves` |
 * | checkpoints with their notes of answers, index rows, segments | the session folder | `checkpoints` |
 *
 * There is no selection of a latest checkpoint: a prompt is compared with the index, always. Staging belongs to the save
 * that writes it, which is refused at its publication and takes it away.
 *
 * Invariant: every place drops a failed session by lineage, so that what others grew from it goes too; a session that is only
 * removed loses its own alone.
 */
import { PlumblineError } from '../errors.js';
import type { Bank } from './bank.js';
import type { CheckpointStore, DropCount } from './checkpoints/store.js';
import type { Place } from './containment/contain.js';
import type { Dropped } from './containment/receipts.js';
import type { StateValue } from './types.js';

/** Saves first: what is refused then need not be deleted. */
export function storePlaces<S extends StateValue>(store: CheckpointStore<S>): readonly Place[] {
  const cancel = (session: string, reason: 'session_fenced' | 'dropped'): Dropped => {
    const pendingSaves = store.cancelSaves(session, reason);
    return { pendingSaves, staging: pendingSaves };
  };
  const dropped = async ({ checkpoints, indexRows, blobsKeptShared }: DropCount): Promise<Dropped> => {
    if ((await store.sweep()) > 0) {
      throw new PlumblineError('session_store_unusable', 'files that were dropped could not be taken away');
    }
    return { checkpoints, indexRows, blobsKeptShared };
  };
  return [
    {
      name: 'saves',
      step: 'F3',
      drop: (session) => cancel(session, 'session_fenced'),
      remove: (session) => cancel(session, 'dropped'),
    },
    {
      name: 'checkpoints',
      step: 'F6',
      drop: async (session) => dropped(await store.dropLineage(session)),
      remove: async (session) => dropped(await store.dropSession(session)),
    },
  ];
}

export function bankPlace<S extends StateValue>(bank: Bank<S>): Place {
  return {
    name: 'bank',
    step: 'F5',
    drop: (session) => bank.dropSession(session),
    remove: (session) => bank.dropSession(session, 'own'),
  };
}

/** Names of the session and what was kept of its answers. */
export function conversationPlace(drop: (session: string) => Dropped): Place {
  return { name: 'conversations', step: 'F5', drop, remove: drop };
}
