/** What turns of sessions ask of a store on a disk. */
import type { SequenceState } from '../engine/model.js';
import type { Capture, Lineage, RestoreOutcome, RestoreReason, StateStamp } from '../sessions/types.js';

/** What the disk has; see sessions/checkpoints/store.ts. */
export interface DiskStore<Candidate extends DiskCandidate = DiskCandidate> {
  match(
    tokens: readonly number[],
    stamp: StateStamp,
  ):
    | { readonly kind: 'candidate'; readonly candidate: Candidate }
    | { readonly kind: 'no-match'; readonly reason: RestoreReason };
  hold(candidate: Candidate): () => void;
  restore(candidate: Candidate, signal?: AbortSignal): Promise<RestoreOutcome<SequenceState>>;
  save(request: {
    readonly capture: Capture<SequenceState>;
    readonly stamp: StateStamp;
    readonly lineage: Lineage;
    readonly session: string;
    readonly note?: (() => Uint8Array | undefined) | undefined;
  }): void;
}

export interface DiskCandidate {
  readonly length: number;
  readonly session: string;
  readonly kind: Capture<SequenceState>['kind'];
  readonly lineage: Lineage;
}
