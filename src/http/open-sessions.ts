/**
 * The sessions of a served model, put together from the options: what is kept in memory, whom a request belongs to, and
 * what /health tells of it.
 *
 * Invariants: `close` comes before the model is closed and gives every kept state back; where no sessions are kept, the
 * reason is among the declined paths.
 */
import type { Options } from '../config.js';
import { CommittedTurns } from '../chat/history-splice.js';
import type { SequenceState } from '../engine/model.js';
import type { LoadedModel } from '../families/load.js';
import { laneOf } from '../generate/choose-sequence.js';
import { Sessions } from '../schedule/session-turn.js';
import { Bank } from '../sessions/bank.js';
import { NO_FENCES, type FenceView } from '../sessions/fence-view.js';
import type { DeclinedPath, SessionsHealth } from './health.js';

export interface OpenedSessions {
  /** What the scheduler asks; absent when no sessions are kept. */
  readonly turns?: Sessions | undefined;
  readonly bank?: Bank<SequenceState> | undefined;
  readonly committed: CommittedTurns;
  health(): SessionsHealth;
  declined(): readonly DeclinedPath[];
  close(): Promise<void>;
}

export function openSessions({ model, memory }: LoadedModel, options: Options): OpenedSessions {
  const committed = new CommittedTurns();
  const { stateIdentity } = model;
  if (options.sessions === 'off' || stateIdentity === undefined) {
    const reason = options.sessions === 'off' ? 'switched off' : 'the states of this model have no identity';
    return {
      committed,
      health: () => ({ mode: 'off' }),
      declined: () => [{ path: 'sessions', reason }],
      close: async () => undefined,
    };
  }
  const fences: FenceView = NO_FENCES;
  const bank = memory.keptStateBytes > 0 ? new Bank<SequenceState>(memory.keptStateBytes, fences) : undefined;
  const restores: Record<string, number> = {};
  const turns = new Sessions({
    stamp: (lane) => stateIdentity.stamp(lane),
    laneOf: (sampler) => laneOf(model, sampler),
    fences,
    bank,
    onRestore: (outcome) => {
      const key = outcome.kind === 'restored' ? outcome.from : outcome.reason;
      restores[key] = (restores[key] ?? 0) + 1;
    },
  });
  return {
    turns,
    bank,
    committed,
    health: () => ({ mode: 'on', ram: bank && bankHealth(bank), inferred: turns.conversations.size, restores }),
    declined: () => (bank ? [] : [{ path: 'sessions in memory', reason: 'there is no memory for them' }]),
    close: async () => bank?.clear(),
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
