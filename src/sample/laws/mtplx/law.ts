/**
 * The MTPLX sampler law as served: checked row -> mask and penalties -> host distribution -> one double -> token.
 *
 * Invariants: greedy draws nothing, sampling draws exactly one double a token, after the row exists; counts grow with
 * emitted tokens only; a row that raises leaves counts and generator as they were.
 */
import { PlumblineError } from '../../../errors.js';
import { LogprobReader } from '../../logprobs.js';
import type { ResolvedSampling } from '../../resolve-sampling.js';
import { Pcg64 } from '../../rng/pcg64.js';
import type { RequestSampler, SampledToken, SamplerLaw, SamplerOptions } from '../../sampler.js';
import type { TokenId } from '../../token-id.js';
import type { RowContext, ValidRow } from '../../validity.js';
import { laneOf, type Filters, type Lane } from './filters.js';
import { HostShaper } from './host-distribution.js';
import { clampPenalty, type Penalties } from './penalties.js';
import { RowProcessor } from './row-processor.js';

/** Shapers by vocabulary size: their working memory is V-sized, and shaping is synchronous, so requests share it. */
const shapers = new Map<number, HostShaper>();

function shaperFor(vocabSize: number): HostShaper {
  let shaper = shapers.get(vocabSize);
  if (shaper === undefined) shapers.set(vocabSize, (shaper = new HostShaper(vocabSize)));
  return shaper;
}

export class MtplxSampler implements RequestSampler {
  readonly seed: bigint;
  private readonly filters: Filters;
  private readonly lane: Lane;
  private readonly random: Pcg64;
  private readonly shaper: HostShaper;
  private readonly processor: RowProcessor;
  private readonly logprobs = new LogprobReader();
  private readonly counts = new Map<number, number>();
  private readonly penalties: Penalties;

  constructor(
    settings: ResolvedSampling,
    private readonly options: SamplerOptions,
  ) {
    const { vocabSize, tokenizerSize = vocabSize, rowDtype = 'f32' } = options;
    this.seed = settings.seed;
    this.filters = settings;
    this.lane = laneOf(settings);
    this.random = new Pcg64(settings.seed);
    this.shaper = shaperFor(vocabSize);
    this.processor = new RowProcessor({ vocabSize, tokenizerSize, dtype: rowDtype });
    this.penalties = {
      presence: clampPenalty(settings.presencePenalty),
      frequency: clampPenalty(settings.frequencyPenalty),
      counts: this.counts,
    };
  }

  next(row: Float32Array, context: RowContext): SampledToken {
    if (row.length !== this.options.vocabSize) {
      throw new PlumblineError(
        'internal_error',
        `a row of ${row.length} logits for a vocabulary of ${this.options.vocabSize}`,
      );
    }
    const processed = this.processor.process(row, this.penalties, this.lane, context);
    const tokenId = processed.token(this.shaper.draw(processed, this.filters, context, this.random));
    const said = this.describe(processed, tokenId);
    this.counts.set(tokenId, (this.counts.get(tokenId) ?? 0) + 1);
    return said;
  }

  private describe(processed: ValidRow, tokenId: TokenId): SampledToken {
    const { topLogprobs } = this.options;
    if (topLogprobs === undefined) return { tokenId };
    const { chosen, top } = this.logprobs.read(processed, tokenId, topLogprobs);
    return { tokenId, logprob: chosen, topLogprobs: top };
  }
}

export const mtplxLaw: SamplerLaw = {
  name: 'mtplx',
  create: (settings, options) => new MtplxSampler(settings, options),
};
