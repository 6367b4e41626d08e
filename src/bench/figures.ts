/**
 * What a measurement is: a value over several rounds, and beside it what limits it. Every part of the bench reports in
 * this form, so that the table and the JSON say the same.
 *
 * Invariants: a value of several rounds is shown as its median with the least and the greatest; a share is the value over
 * its bound round by round, so that a slow moment of the machine weighs on both.
 */

/** Median, least and greatest of some rounds. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly rounds: number;
}

export type Unit = 'tokens/s' | 'GB/s' | 'GFLOP/s' | 'ms' | 'GB' | 'x';

export interface Bound {
  /** In the unit of the figure. */
  readonly value: Spread;
  /** The figure over its bound; for times and sizes that must stay small, how much of the allowance is used. */
  readonly share: Spread;
  /** What the bound is, in words. */
  readonly what: string;
}

export interface Target {
  readonly text: string;
  readonly met: boolean;
}

export interface Figure {
  readonly name: string;
  readonly unit: Unit;
  readonly value: Spread;
  readonly bound?: Bound | undefined;
  readonly target?: Target | undefined;
}

/** One part of the bench, done. */
export interface PartReport {
  readonly part: string;
  readonly figures: readonly Figure[];
  /** What the figures rest on: sizes, counts, conditions. */
  readonly notes: readonly string[];
}

/** @param values at least one */
export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  return { median: percentile(sorted, 0.5), min: sorted[0]!, max: sorted.at(-1)!, rounds: sorted.length };
}

/** The value below which a part `p` of ascending `sorted` lies; between two values, in proportion. */
export function percentile(sorted: readonly number[], p: number): number {
  const at = p * (sorted.length - 1);
  const low = Math.floor(at);
  const high = Math.ceil(at);
  return sorted[low]! + (sorted[high]! - sorted[low]!) * (at - low);
}

/** A figure against a bound that was measured in the same rounds. */
export function against(name: string, unit: Unit, values: readonly number[], bounds: readonly number[], what: string) {
  const value = spread(values);
  const share = spread(values.map((measured, round) => measured / bounds[round]!));
  return { name, unit, value, bound: { value: spread(bounds), share, what } } satisfies Figure;
}

/** A figure that must reach this share of its bound, in the median. */
export function withShareTarget(figure: Figure & { readonly bound: Bound }, least: number): Figure {
  const met = figure.bound.share.median >= least;
  return { ...figure, target: { text: `at least ${Math.round(100 * least)} % of the bound`, met } };
}

/** A figure with a greatest allowed value, judged by `judged`. */
export function withLimit(figure: Figure, judged: number, limit: number, text: string): Figure {
  return { ...figure, target: { text, met: judged <= limit } };
}
