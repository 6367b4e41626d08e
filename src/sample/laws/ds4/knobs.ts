/**
 * The sampler's knobs as the DS4 law reads them: rounded to float32 first, then brought into their ranges.
 *
 * Invariant: no value is an error; temperature at or below zero (after rounding) is greedy and the others are ignored.
 */
import type { Ds4Constants } from './constants.js';

export interface Ds4Wishes {
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  readonly minP?: number | undefined;
}

/** float32 values in their ranges. */
export interface Ds4Knobs {
  readonly temperature: number;
  /** In (0, 1]; 1 is off. */
  readonly topP: number;
  /** 0 is off; else from 1 to the row's length and the law's limit. */
  readonly topK: number;
  /** At least 0. */
  readonly minP: number;
}

export function settleKnobs(wishes: Ds4Wishes, vocabSize: number, { mostTopK }: Ds4Constants): Ds4Knobs {
  const topP = Math.fround(wishes.topP);
  const minP = Math.fround(wishes.minP ?? 0);
  const topK = readTopK(wishes.topK);
  return {
    temperature: Math.fround(wishes.temperature),
    topP: topP <= 0 || topP > 1 ? 1 : topP,
    topK: Math.min(topK, mostTopK, vocabSize),
    minP: minP < 0 ? 0 : minP,
  };
}

/** Truncated; negative or NaN is off. */
export function readTopK(topK: number): number {
  return topK > 0 ? Math.trunc(topK) : 0;
}
