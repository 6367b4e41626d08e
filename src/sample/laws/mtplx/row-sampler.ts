/**
 * From a raw row to a token, for the settings of one request: check, mask and penalise, shape, draw, describe.
 *
 * Invariants: holds nothing that changes with the tokens of a request but its generator; greedy draws nothing, sampling
 * draws exactly one double a token, after the row was checked; a row is penalised for the counts that it is given.
 */
import { PlumblineError } from '../../../errors.js';
import { LogprobReader } from '../../logprobs.js';
import type { ResolvedSampling } from '../../resolve-sampling.js';
import type { SampledToken, SamplerOptions } from '../../sampler.js';
import type { RowContext, ValidRow } from '../../validity.js';
import type { UniformSource } from './choice.js';
import type { Distribution } from './distribution.js';
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

/** How often each token was emitted. */
export type EmittedCounts = ReadonlyMap<number, number>;

/** Counts one more token, in place. */
export function countToken(counts: Map<number, number>, tokenId: number): void {
  counts.set(tokenId, (counts.get(tokenId) ?? 0) + 1);
}

export class RowSampler {
  readonly lane: Lane;
  /** Presence or frequency penalties are on, so rows depend on what was emitted. */
  readonly penalised: boolean;
  private readonly shaper: HostShaper;
  private readonly processor: RowProcessor;
  private readonly logprobs = new LogprobReader();
  private readonly amounts: Pick<Penalties, 'presence' | 'frequency'>;

  constructor(
    settings: ResolvedSampling,
    private readonly options: SamplerOptions,
    private readonly random: UniformSource,
    private readonly filters: Filters = settings,
  ) {
    const { vocabSize, tokenizerSize = vocabSize, rowDtype = 'f32' } = options;
    this.lane = laneOf(filters);
    this.shaper = shaperFor(vocabSize);
    this.processor = new RowProcessor({ vocabSize, tokenizerSize, dtype: rowDtype });
    const [presence, frequency] = [clampPenalty(settings.presencePenalty), clampPenalty(settings.frequencyPenalty)];
    this.amounts = { presence, frequency };
    this.penalised = presence !== 0 || frequency !== 0;
  }

  /**
   * The row as it is sampled: checked, masked, penalised for `counts`.
   * @returns memory that is valid until the next call.
   * @throws NonFiniteLogitsError: nothing was drawn.
   */
  process(row: Float32Array, counts: EmittedCounts, context: RowContext): ValidRow {
    const { vocabSize } = this.options;
    if (row.length !== vocabSize) {
      throw new PlumblineError('internal_error', `a row of ${row.length} logits for a vocabulary of ${vocabSize}`);
    }
    return this.processor.process(row, { ...this.amounts, counts }, this.lane, context);
  }

  /** What the processed row is sampled from. */
  shape(processed: ValidRow, context: RowContext): Distribution {
    return this.shaper.shape(processed, this.filters, context);
  }

  /** The token of plain decoding: the maximum when greedy, else one draw. */
  choose(processed: ValidRow, context: RowContext): SampledToken {
    return this.say(processed, this.shaper.draw(processed, this.filters, context, this.random));
  }

  /** An id of a processed row as a token, with the log-probabilities that were asked for. */
  say(processed: ValidRow, id: number): SampledToken {
    const tokenId = processed.token(id);
    const { topLogprobs } = this.options;
    if (topLogprobs === undefined) return { tokenId };
    const { chosen, top } = this.logprobs.read(processed, tokenId, topLogprobs);
    return { tokenId, logprob: chosen, topLogprobs: top };
  }
}
