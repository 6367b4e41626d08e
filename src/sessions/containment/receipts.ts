/**
 * What is kept of a contained failure: counts, names of sites, epochs. No token, no text, no path.
 *
 * Invariant: the ring holds the latest receipts, newest first, and no more than its size.
 */
import type { LogitsCensus } from '../../errors.js';

/** What a place gave up, by kind. */
export const DROPPED = [
  'live',
  'prefix',
  'execution',
  'resident',
  'leases',
  'aliases',
  'checkpoints',
  'blobsKeptShared',
  'indexRows',
  'staging',
  'pendingSaves',
] as const;
export type DroppedKind = (typeof DROPPED)[number];
export type Dropped = Readonly<Partial<Record<DroppedKind, number>>>;

/** The request whose row was invalid. */
export interface FailedRequest {
  readonly requestId: string;
  readonly session: string;
  readonly family: string;
  readonly lane: 'ar' | 'mtp';
  /** Most drafts of a round; 0 in the plain lane. */
  readonly depth: number;
  readonly census: LogitsCensus;
  /** Prompt tokens whose state was reused. */
  readonly restoredTokens: number;
  readonly emittedTokens: number;
  /** Prompts by which a client without a session id will ask again. */
  readonly prompts: readonly ArrayLike<number>[];
}

export interface ContainmentReceipt {
  readonly action: 'non_finite_logits';
  /** ISO 8601. */
  readonly ts: string;
  readonly requestId: string;
  readonly sessionId: string;
  readonly family: string;
  readonly lane: 'ar' | 'mtp';
  readonly depth: number;
  readonly phase: string;
  readonly site: string;
  readonly step: number;
  readonly census: { readonly nan: number; readonly inf: number; readonly vocab: number };
  readonly restoredTokens: number;
  readonly emittedTokens: number;
  /** durable: null where there is no session folder, so that nothing has to be fenced beyond the process. */
  readonly fence: { readonly from: number; readonly to: number; readonly durable: boolean | null };
  readonly dropped: Readonly<Record<DroppedKind, number>>;
  /** `<step> <place>: <reason>`; a sweep tries again what failed. */
  readonly errors: readonly string[];
  readonly milliseconds: number;
}

const KEPT_RECEIPTS = 16;

export class ReceiptRing {
  readonly #receipts: ContainmentReceipt[] = [];

  add(receipt: ContainmentReceipt): void {
    this.#receipts.unshift(receipt);
    this.#receipts.length = Math.min(this.#receipts.length, KEPT_RECEIPTS);
  }

  /** Newest first. */
  get all(): readonly ContainmentReceipt[] {
    return [...this.#receipts];
  }
}

/** The sum of what several places gave up. */
export function sumDropped(parts: Iterable<Dropped>): Record<DroppedKind, number> {
  const sum = Object.fromEntries(DROPPED.map((kind) => [kind, 0])) as Record<DroppedKind, number>;
  for (const part of parts) {
    for (const kind of DROPPED) sum[kind] += part[kind] ?? 0;
  }
  return sum;
}
