/**
 * What a sampler law says of the sampling fields of a request and of their defaults: data, so that the rooms that read
 * requests and settle defaults need no condition on a law.
 */
import type { ResolvedSampling } from './resolve-sampling.js';

export interface SamplingRules {
  /** What nobody says otherwise. */
  readonly defaults: Required<Omit<ResolvedSampling, 'seed'>> & { readonly minP: number };
  /** Whether min_p acts; if not, only 0 is taken. */
  readonly minP: boolean;
  /** Whether presence and frequency penalties act; if not, only 0 is taken. */
  readonly penalties: boolean;
  /** How a request's top_k is read: as a non-negative integer, or any number, truncated, with negative ones as 0. */
  readonly topK: 'integer' | 'truncated';
  /** What the seed 0 is: a seed like any other, or a way of saying that none is given. */
  readonly seedZero: 'seed' | 'unset';
  /** Makes the seed of a request that has none. */
  readonly freshSeed: () => bigint;
  /** Positive temperatures below it are refused; 0: none is. */
  readonly leastTemperature: number;
  /** Whether the sampling fields of generation_config.json count. */
  readonly generationConfig: boolean;
  /** Whether a request in thinking mode takes the law's own defaults, over those of server and family. */
  readonly ownDefaultsWhenThinking: boolean;
}
