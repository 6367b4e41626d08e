/**
 * The numbers of the DS4 law (antirez/ds4 as of August 2026) in one value, read at the moment of use; nothing outside
 * this law reads them, which a test holds by changing each in turn.
 */
import type { XorshiftConstants } from '../../rng/xorshift64star.js';

export interface Ds4Constants {
  /** Where the scans for a maximum start: the float32 nearest to -1e30. */
  readonly start: number;
  /** Most candidates of top_k. */
  readonly mostTopK: number;
  /** The log-probability of a token whose logit is not finite. */
  readonly maskedLogprob: number;
  readonly random: XorshiftConstants;
  /** Knobs that nobody sets; in thinking mode, those that the client does not set. */
  readonly defaults: {
    readonly temperature: number;
    readonly topP: number;
    readonly topK: number;
    readonly minP: number;
  };
}

export const DS4: Ds4Constants = {
  start: Math.fround(-1e30),
  mostTopK: 1024,
  maskedLogprob: Math.fround(-1e30),
  random: {
    shifts: [12n, 25n, 27n],
    multiplier: 0x2545f4914f6cdd1dn,
    zeroState: 0x9e3779b97f4a7c15n,
  },
  defaults: { temperature: 1, topP: 1, topK: 0, minP: 0.05 },
};
