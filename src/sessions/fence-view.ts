/**
 * What stores of session state ask about fences. The table itself, and what happens after a failure, is containment's.
 *
 * Invariant: every comparison is synchronous, and what depends on it happens in the same synchronous block.
 */
import type { Lineage, SessionEpoch } from './types.js';

export interface FenceView {
  /** The epoch that a turn of this session computes under: taken when it starts, and kept to its end. */
  epochOf(session: string): number;
  /** failing: a containment is under way. cold: its next turn restores nothing. */
  stateOf(session: string): 'ready' | 'failing' | 'cold';
  /** Resolves when no containment of this session is under way; undefined when none is. */
  settled(session: string): Promise<void> | undefined;
  isFenced(lineage: Lineage): boolean;
  /** `isFenced` at a publication; counts what it refuses. */
  mayPublish(lineage: Lineage): boolean;
  /** The comparison of a restore by `session`; counts what it refuses. */
  mayRestore(session: string, lineage: Lineage): boolean;
  /** A turn was banked: under the living epoch it ends the cold time of its session. */
  banked(pair: SessionEpoch): void;
  /** The failed session that a prompt without an id goes on with. */
  sessionOfPrompt(prompt: ArrayLike<number>): string | undefined;
}

/** Nothing ever failed. For models whose rows fail no request, and for stores alone. */
export const NO_FENCES: FenceView = {
  epochOf: () => 0,
  stateOf: () => 'ready',
  settled: () => undefined,
  isFenced: () => false,
  mayPublish: () => true,
  mayRestore: () => true,
  banked: () => undefined,
  sessionOfPrompt: () => undefined,
};
