/**
 * What the token loop sees of sampling: one object a request, made by the law that the model's family names.
 *
 * Invariants: a law is data (`FamilyLaws.sampler`), never a condition on a family; one random generator lives and dies
 * with the request and is never rolled back; whether a row without a winner is an error or a token is the law's to say.
 */
import type { FamilyLaws } from '../engine/model.js';
import { ds4Law } from './laws/ds4/law.js';
import { mtplxLaw } from './laws/mtplx/law.js';
import type { RowDtype } from './laws/mtplx/penalties.js';
import type { TokenLogprob } from './logprobs.js';
import type { ResolvedSampling } from './resolve-sampling.js';
import type { LogitsWarning } from './row-watch.js';
import type { SamplingRules } from './sampling-rules.js';
import type { AcceptanceLaw, SpeculativeSampler } from './speculation.js';
import type { TokenId } from './token-id.js';
import type { RowContext } from './validity.js';

export interface SamplerOptions {
  /** Length of every row: the width of lm_head. */
  readonly vocabSize: number;
  /** Ids at or above it exist in a padded lm_head only and are never drawn; absent: vocabSize. */
  readonly tokenizerSize?: number | undefined;
  /** The type that the forward computed rows in; penalties round to it. Absent: f32. */
  readonly rowDtype?: RowDtype | undefined;
  /** undefined: no log-probabilities; n: the chosen token's and the n most likely ones. */
  readonly topLogprobs?: number | undefined;
  /** Follows the text of the answer for laws that choose greedily inside of some of it; fresh for each request. */
  readonly guide?: SamplingGuide | undefined;
}

/** What the text so far says of the next token. */
export interface SamplingGuide {
  /** Whether the next token is chosen greedily, whatever the settings. */
  readonly forcesGreedy: boolean;
  /** Tells of a chosen token. */
  push(tokenId: number): void;
}

export interface SpeculativeOptions extends SamplerOptions {
  readonly acceptance: AcceptanceLaw;
  /** Settings of the draft draws where an operator wants others than the target's. */
  readonly draftFilters?: Pick<ResolvedSampling, 'temperature' | 'topP' | 'topK'> | undefined;
}

export interface SampledToken {
  readonly tokenId: TokenId;
  readonly logprob?: TokenLogprob | undefined;
  readonly topLogprobs?: readonly TokenLogprob[] | undefined;
}

export interface RequestSampler {
  /** The seed in use, so that an unseeded answer can be asked for again. */
  readonly seed: bigint;
  /**
   * Chooses the next token from a raw row and counts it as emitted.
   * @param row [vocabSize] float32, not changed.
   * @throws NonFiniteLogitsError, where the law raises: nothing was drawn or counted then.
   */
  next(row: Float32Array, context: RowContext): SampledToken;
  /**
   * Judges a row that decides nothing, such as that of a closing forward.
   * @throws NonFiniteLogitsError, where the law raises.
   */
  check(row: Float32Array, context: RowContext): void;
  /** Rows so far that were made into tokens though they held NaN, +infinity or nothing finite. */
  readonly warning?: LogitsWarning | undefined;
  /** The state of the generator, in laws where another one seeded with it goes on from there. */
  readonly randomState?: bigint | undefined;
}

export interface SamplerLaw {
  readonly name: FamilyLaws['sampler'];
  readonly rules: SamplingRules;
  create(settings: ResolvedSampling, options: SamplerOptions): RequestSampler;
  createSpeculative(settings: ResolvedSampling, options: SpeculativeOptions): SpeculativeSampler;
}

const LAWS: Readonly<Record<FamilyLaws['sampler'], SamplerLaw>> = { mtplx: mtplxLaw, ds4: ds4Law };

/** What a law says of the fields of requests. */
export function samplingRules(law: FamilyLaws['sampler']): SamplingRules {
  return LAWS[law].rules;
}

/** The sampler of one request. */
export function createSampler(
  law: FamilyLaws['sampler'],
  settings: ResolvedSampling,
  options: SamplerOptions,
): RequestSampler {
  return LAWS[law].create(settings, options);
}

/**
 * The sampler of one request that speculates. Under `coupled` and at temperature 0 its tokens are those of
 * `createSampler` for the same rows.
 */
export function createSpeculativeSampler(
  law: FamilyLaws['sampler'],
  settings: ResolvedSampling,
  options: SpeculativeOptions,
): SpeculativeSampler {
  return LAWS[law].createSpeculative(settings, options);
}
