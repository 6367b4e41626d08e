/**
 * What the speculative rounds of a request did, counted as they happen.
 */
import type { SpeculationStats } from './sequence.js';

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

  /** A round of the draft head: drafts that were decided, and those accepted, from depth 1. */
  drafted(decided: number, accepted: number): void {
    this.#rounds++;
    for (let depth = 0; depth < decided; depth++) {
      this.#offered[depth] = (this.#offered[depth] ?? 0) + 1;
      this.#accepted[depth] = (this.#accepted[depth] ?? 0) + (depth < accepted ? 1 : 0);
    }
  }

  copied(offered: number, accepted: number): void {
    this.#rounds++;
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
