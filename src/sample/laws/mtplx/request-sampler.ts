/**
 * The MTPLX sampler law as served in plain decoding: one row, one token, counted.
 *
 * Invariants: counts grow with emitted tokens only; a row that raises leaves counts and generator as they were.
 */
import type { ResolvedSampling } from '../../resolve-sampling.js';
import { Pcg64 } from '../../rng/pcg64.js';
import type { RequestSampler, SampledToken, SamplerOptions } from '../../sampler.js';
import { checkRow, type RowContext } from '../../validity.js';
import type { UniformSource } from './choice.js';
import { countToken, RowSampler } from './row-sampler.js';

export class MtplxSampler implements RequestSampler {
  readonly seed: bigint;
  protected readonly rows: RowSampler;
  /** Completion tokens so far: id -> how often. */
  protected readonly counts = new Map<number, number>();

  /** @param random the request's one generator; by default seeded as the settings say. */
  constructor(
    settings: ResolvedSampling,
    options: SamplerOptions,
    protected readonly random: UniformSource = new Pcg64(settings.seed),
  ) {
    this.seed = settings.seed;
    this.rows = new RowSampler(settings, options, random);
  }

  next(row: Float32Array, context: RowContext): SampledToken {
    const sampled = this.rows.choose(this.rows.process(row, this.counts, context), context);
    countToken(this.counts, sampled.tokenId);
    return sampled;
  }

  check(row: Float32Array, context: RowContext): void {
    checkRow(row, context);
  }
}
