/**
 * How many tokens the draft head guesses in the next round.
 *
 * Invariants: a policy sees outcomes of earlier rounds, never the rows of the coming one, so it cannot change the
 * distribution of tokens; it is pure: the same calls give the same depths; no depth exceeds the maximum.
 */
import { AcceptanceRates } from './acceptance-rates.js';

/**
 * off: always the maximum. expected-value: past depth 2 only where one more draft is likely enough to be kept.
 * position-average: the best ratio of tokens to work, drafting nothing where that is best. streak: up after full
 * accepts, down after early rejections. cost: the most tokens for the time that rounds take.
 */
export type DepthPolicyName = 'off' | 'expected-value' | 'position-average' | 'streak' | 'cost';

/** Why a depth was chosen. */
export type DepthReason =
  | 'fixed'
  | 'streak'
  | 'warm_up'
  | 'explore'
  | 'expected_value'
  | 'position_average'
  | 'low_acceptance'
  | 'probe'
  | 'tokens_per_time';

export interface DepthChoice {
  /** Drafts of the next round, 0 to the maximum. */
  readonly depth: number;
  readonly reason: DepthReason;
}

/** What became of a round with drafts. */
export interface DepthOutcome {
  /** Drafts that were verified: at least 1; fewer than chosen where there was no room. */
  readonly depth: number;
  readonly accepted: number;
  /** Time of all draft forwards, and of the verify forward, where they were measured. */
  readonly draftMs?: number | undefined;
  readonly verifyMs?: number | undefined;
}

export interface DepthPolicy {
  readonly name: DepthPolicyName;
  readonly maxDepth: number;
  /** The depth of the coming round; called once a round. */
  next(): DepthChoice;
  report(outcome: DepthOutcome): void;
}

type Steering = Pick<DepthPolicy, 'next' | 'report'>;

/** A depth's acceptance before anything is known, where a round costs what the model of the priors' origin costs. */
const PRIORS = [0.92, 0.64, 0.32];
const RATE_WEIGHT = 0.12;
/** One more draft: a step of the head, and a row of the verify forward. */
const DRAFT_MS = 2.0;
const ROW_MS = 1.5;
/** Every so many rounds the maximum is tried, because a depth that is never drafted teaches nothing. */
const EXPLORE_EVERY = 32;
/** Plain decoding that drafts compete with. */
const TOKENS_PER_SECOND = 40;

const ratesFrom = (priors: readonly number[], weight: number, maxDepth: number): AcceptanceRates =>
  new AcceptanceRates(
    Array.from({ length: maxDepth }, (_, i) => priors[Math.min(i, priors.length - 1)]!),
    weight,
  );

/** The depth from `least` on whose value is highest; of equal ones the smallest. */
function bestDepth(least: number, maxDepth: number, value: (depth: number) => number): number {
  let best = least;
  for (let depth = least + 1; depth <= maxDepth; depth++) if (value(depth) > value(best)) best = depth;
  return best;
}

class Fixed implements Steering {
  constructor(private readonly depth: number) {}

  next(): DepthChoice {
    return { depth: this.depth, reason: 'fixed' };
  }

  report(): void {
    // Whatever became of it, the next round is as deep.
  }
}

/** Starts at 1; one deeper after 4 full accepts in a row, one less deep after a rejection in the first half. */
class Streak implements Steering {
  private static readonly FULL_ACCEPTS = 4;
  private depth = 1;
  private streak = 0;

  constructor(private readonly maxDepth: number) {}

  next(): DepthChoice {
    return { depth: this.depth, reason: 'streak' };
  }

  report({ depth, accepted }: DepthOutcome): void {
    if (accepted < depth) {
      this.streak = 0;
      if (accepted + 1 <= Math.max(1, Math.floor(this.depth / 2))) this.depth = Math.max(1, this.depth - 1);
    } else if (++this.streak === Streak.FULL_ACCEPTS) {
      this.streak = 0;
      this.depth = Math.min(this.maxDepth, this.depth + 1);
    }
  }
}

/**
 * Two drafts always; one more while all before it, and it, are likely enough to be accepted. The head's own confidence in
 * a draft is not known before it is made and counts as 1.
 */
class ExpectedValue implements Steering {
  private static readonly FREE_DEPTH = 2;
  private static readonly LEAST_CHANCE = 0.18;
  private static readonly MARGIN = 1.1;
  private static readonly WARM_UP_ROUNDS = 4;
  private readonly threshold = Math.max(
    ExpectedValue.LEAST_CHANCE,
    ((DRAFT_MS + ROW_MS) / 1000) * TOKENS_PER_SECOND * ExpectedValue.MARGIN,
  );
  private readonly rates: AcceptanceRates;
  private rounds = 0;

  constructor(private readonly maxDepth: number) {
    this.rates = ratesFrom(PRIORS, RATE_WEIGHT, maxDepth);
  }

  next(): DepthChoice {
    this.rounds++;
    if (this.rounds <= ExpectedValue.WARM_UP_ROUNDS) return { depth: this.maxDepth, reason: 'warm_up' };
    if (this.rounds % EXPLORE_EVERY === 0) return { depth: this.maxDepth, reason: 'explore' };
    let depth = Math.min(ExpectedValue.FREE_DEPTH, this.maxDepth);
    while (depth < this.maxDepth && this.rates.prefix(depth + 1) >= this.threshold) depth++;
    return { depth, reason: 'expected_value' };
  }

  report({ depth, accepted }: DepthOutcome): void {
    this.rates.record(depth, accepted);
  }
}

/** The most tokens for the work, with a draft at a fifth of a verify forward; no draft where that is best. */
class PositionAverage implements Steering {
  private static readonly PRIOR = 0.85;
  private static readonly PRIOR_DECAY = 0.98;
  private static readonly WEIGHT = 0.15;
  private static readonly HEAD_COST = 0.2;
  private static readonly PROBE_EVERY = 8;
  private readonly rates: AcceptanceRates;
  private skipped = 0;

  constructor(private readonly maxDepth: number) {
    const priors = Array.from({ length: maxDepth }, (_, i) => PositionAverage.PRIOR * PositionAverage.PRIOR_DECAY ** i);
    this.rates = new AcceptanceRates(priors, PositionAverage.WEIGHT);
  }

  next(): DepthChoice {
    const depth = bestDepth(
      0,
      this.maxDepth,
      (d) => this.rates.expectedTokens(d) / (1 + PositionAverage.HEAD_COST * d),
    );
    if (depth > 0) {
      this.skipped = 0;
      return { depth, reason: 'position_average' };
    }
    if (this.skipped < PositionAverage.PROBE_EVERY) {
      this.skipped++;
      return { depth: 0, reason: 'low_acceptance' };
    }
    // One draft is enough to learn the rate that decides between some and none.
    this.skipped = 0;
    return { depth: 1, reason: 'probe' };
  }

  report({ depth, accepted }: DepthOutcome): void {
    this.rates.record(depth, accepted);
  }
}

/** The most tokens for the time, from 1 draft on; times are averages of what was measured, over assumed ones. */
class Cost implements Steering {
  private readonly rates: AcceptanceRates;
  private draftMs = DRAFT_MS;
  /** A verify forward of the primary alone. */
  private forwardMs = 1000 / TOKENS_PER_SECOND;
  private rounds = 0;

  constructor(private readonly maxDepth: number) {
    this.rates = ratesFrom(PRIORS, RATE_WEIGHT, maxDepth);
  }

  next(): DepthChoice {
    if (++this.rounds % EXPLORE_EVERY === 0) return { depth: this.maxDepth, reason: 'explore' };
    const depth = bestDepth(
      1,
      this.maxDepth,
      (d) => this.rates.expectedTokens(d) / (this.forwardMs + d * (this.draftMs + ROW_MS)),
    );
    return { depth, reason: 'tokens_per_time' };
  }

  report({ depth, accepted, draftMs, verifyMs }: DepthOutcome): void {
    this.rates.record(depth, accepted);
    const average = (old: number, measured: number): number => old + RATE_WEIGHT * (measured - old);
    if (draftMs !== undefined) this.draftMs = average(this.draftMs, draftMs / depth);
    if (verifyMs !== undefined) this.forwardMs = average(this.forwardMs, Math.max(0, verifyMs - depth * ROW_MS));
  }
}

const STEERINGS: Readonly<Record<DepthPolicyName, new (maxDepth: number) => Steering>> = {
  off: Fixed,
  streak: Streak,
  'expected-value': ExpectedValue,
  'position-average': PositionAverage,
  cost: Cost,
};

/** @param maxDepth an integer; 0 drafts nothing, under every policy. */
export function createDepthPolicy(name: DepthPolicyName, maxDepth: number): DepthPolicy {
  const steering = new (maxDepth === 0 ? Fixed : STEERINGS[name])(maxDepth);
  return { name, maxDepth, next: () => steering.next(), report: (outcome) => steering.report(outcome) };
}
