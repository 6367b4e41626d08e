/** What a store of checkpoints is made with, and what it answers with. */
import type { Log } from '../../observe/log.js';
import type { RestoreReason, StateValue } from '../types.js';
import type { DiskBudget } from './budget.js';
import type { Checksum } from './checksum.js';
import type { IndexEntry } from './checkpoint-index.js';
import type { StoreFences } from './save.js';
import type { Codecs } from './save-plan.js';
import type { SessionFolder } from './session-folder.js';

export interface CheckpointStoreOptions<S extends StateValue> {
  readonly folder: SessionFolder;
  readonly codecs: Codecs<S>;
  /** Gate policies under which rows of the autoregressive lane are known to be the same. */
  readonly knownGatePolicies: readonly string[];
  readonly fences: StoreFences;
  readonly budget: DiskBudget;
  /** Default: zlib's. Any other must give the same values. */
  readonly checksum?: Checksum | undefined;
  readonly log?: Log | undefined;
  /** Milliseconds since 1970, for people. */
  readonly now?: (() => number) | undefined;
  /** Most captures that wait to be written; default 8. */
  readonly mostWaiting?: number | undefined;
  /** Most memory of states that wait to be written or are being written; default no limit. */
  readonly waitingBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A checkpoint that a prompt begins with. */
export type Candidate = Pick<IndexEntry, 'id' | 'length' | 'session' | 'kind' | 'lineage'>;

export type StoreMatch =
  | { readonly kind: 'candidate'; readonly candidate: Candidate }
  | { readonly kind: 'no-match'; readonly reason: RestoreReason };

/** What a drop took away. */
export interface DropCount {
  readonly checkpoints: number;
  /** Rows of the index; each has one file. */
  readonly indexRows: number;
  /** Segments that a checkpoint of somebody else still needs. */
  readonly blobsKeptShared: number;
  readonly pendingSaves: number;
}
