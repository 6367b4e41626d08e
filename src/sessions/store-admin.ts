/** What commands and routes ask of a store of checkpoints. */
import { notFound, type StoreAdmin } from './admin.js';
import type { CheckpointStore } from './checkpoints/store.js';
import { describeEntry } from './checkpoints/stored-sessions.js';
import type { StateValue } from './types.js';

export function storeAdmin<S extends StateValue>(store: CheckpointStore<S>): StoreAdmin {
  return {
    sessions: () => store.sessions(),
    checkpoints: (session) => store.entries(session).map(describeEntry),
    async collect() {
      const { checkpoints } = await store.dropFenced();
      await store.sweep();
      return checkpoints;
    },
    async exportSession(session) {
      const file = store.exportSession(session);
      if (file === undefined) throw notFound();
      return file;
    },
    importSession: (file) => store.importSession(file),
  };
}
