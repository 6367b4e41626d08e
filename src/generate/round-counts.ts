/**
 * What the speculative rounds of a request did, counted as they happen.
 */
import type { WindowOutcome } from '../sample/speculation.js';
import type { SpeculationStats } from './sequence.js';
import type { Round } from './speculative-stage.js';

export class RoundCounts {
  readonly #how: Pick<SpeculationStats, 'mode' | 'depthPolicy' | 'maxDepth'>;
  #rounds = 0;
  #copyRounds = 0;
  #copyOffered = 0;
  #copyAccepted = 0;
  #commits = 0;
  readonly #skipped = new Map<string, number>();
  readonly #offered: number[] = [];
  readonly #accepted: number[] = [];

  constructor(how: Pick<SpeculationStats, 'mode' | 'depthPolicy' | 'maxDepth'>) {
    this.#how = how;
  }

  /** A verified window and what became of it. */
  window(round: Round, { accepted, next }: WindowOutcome, stopTokenIds: ReadonlySet<number>): void {
    this.#rounds++;
    if (round.source === 'context_copy') {
      this.#copied(round.drafts.length, accepted.length);
      return;
    }
    const last = accepted.at(-1);
    const stopped = last !== undefined && stopTokenIds.has(last.tokenId);
    // After an accepted stop the rest of the window is not decided.
    const rejected = next?.origin === 'residual_correction' || (next === undefined && !stopped);
    this.#drafted(Math.min(accepted.length + (rejected ? 1 : 0), round.drafts.length), accepted.length);
  }

  /** Drafts of the head that were decided, and those accepted, from depth 1. */
  #drafted(decided: number, accepted: number): void {
    for (let depth = 0; depth < decided; depth++) {
      this.#offered[depth] = (this.#offered[depth] ?? 0) + 1;
      this.#accepted[depth] = (this.#accepted[depth] ?? 0) + (depth < accepted ? 1 : 0);
    }
  }

  #copied(offered: number, accepted: number): void {
    this.#copyRounds++;
    this.#copyOffered += offered;
    this.#copyAccepted += accepted;
  }

  /** A round without a draft, and why. */
  skipped(reason: string): void {
    this.#skipped.set(reason, (this.#skipped.get(reason) ?? 0) + 1);
  }

  committed(): void {
    this.#commits++;
  }

  snapshot(): SpeculationStats {
    return {
      ...this.#how,
      rounds: this.#rounds,
      skipped: Object.fromEntries(this.#skipped),
      offered: [...this.#offered],
      accepted: [...this.#accepted],
      copyRounds: this.#copyRounds,
      copyOffered: this.#copyOffered,
      copyAccepted: this.#copyAccepted,
      commits: this.#commits,
    };
  }
}
