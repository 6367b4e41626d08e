/**
 * How often the draft at each depth was accepted, given that those before it were: one moving average a depth.
 *
 * Invariants: rates stay in [0, 1]; a depth that a round did not decide keeps its rate.
 */
export class AcceptanceRates {
  private readonly rates: number[];

  /**
   * @param priors one rate a depth, from depth 1.
   * @param weight of the newest round, in (0, 1).
   */
  constructor(
    priors: readonly number[],
    private readonly weight: number,
  ) {
    this.rates = [...priors];
  }

  /** The rate at `depth`, from 1. */
  at(depth: number): number {
    return this.rates[depth - 1] ?? 0;
  }

  /** The chance that `depth` drafts are all accepted. */
  prefix(depth: number): number {
    return this.rates.slice(0, depth).reduce((product, rate) => product * rate, 1);
  }

  /** Tokens that a round of `depth` drafts is expected to bring: those accepted, and one more. */
  expectedTokens(depth: number): number {
    let tokens = 1;
    for (let d = 1; d <= depth; d++) tokens += this.prefix(d);
    return tokens;
  }

  /** A round of `depth` drafts whose first `accepted` were accepted. */
  record(depth: number, accepted: number): void {
    const decided = Math.min(depth, accepted + 1, this.rates.length);
    for (let d = 1; d <= decided; d++) {
      this.rates[d - 1] = (1 - this.weight) * this.at(d) + this.weight * (d <= accepted ? 1 : 0);
    }
  }
}
