/**
 * What the token loop sees of sampling: one object a request, made by the law that the model's family names.
 *
 * Invariants: a law is data (`FamilyLaws.sampler`), never a condition on a family; one random generator lives and dies
 * with the request and is never rolled back; a sampler makes no token from a row that did not pass validity.ts.
 */
import { PlumblineError } from '../errors.js';
import type { FamilyLaws } from '../engine/model.js';
import { mtplxLaw } from './laws/mtplx/law.js';
import type { RowDtype } from './laws/mtplx/penalties.js';
import type { TokenLogprob } from './logprobs.js';
import type { ResolvedSampling } from './resolve-sampling.js';
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
   * @throws NonFiniteLogitsError: nothing was drawn or counted then.
   */
  next(row: Float32Array, context: RowContext): SampledToken;
}

export interface SamplerLaw {
  readonly name: FamilyLaws['sampler'];
  create(settings: ResolvedSampling, options: SamplerOptions): RequestSampler;
  createSpeculative(settings: ResolvedSampling, options: SpeculativeOptions): SpeculativeSampler;
}

const LAWS: Partial<Record<FamilyLaws['sampler'], SamplerLaw>> = { mtplx: mtplxLaw };

function lawNamed(law: FamilyLaws['sampler']): SamplerLaw {
  const known = LAWS[law];
  if (known !== undefined) return known;
  throw new PlumblineError(
    'config_unsupported',
    `sampler law "${law}" is not supported; known: ${Object.keys(LAWS).join(', ')}`,
  );
}

/**
 * The sampler of one request.
 * @throws PlumblineError config_unsupported for a law that is not built yet.
 */
export function createSampler(
  law: FamilyLaws['sampler'],
  settings: ResolvedSampling,
  options: SamplerOptions,
): RequestSampler {
  return lawNamed(law).create(settings, options);
}

/**
 * The sampler of one request that speculates. Under `coupled` and at temperature 0 its tokens are those of
 * `createSampler` for the same rows.
 * @throws PlumblineError config_unsupported for a law that is not built yet.
 */
export function createSpeculativeSampler(
  law: FamilyLaws['sampler'],
  settings: ResolvedSampling,
  options: SpeculativeOptions,
): SpeculativeSampler {
  return lawNamed(law).createSpeculative(settings, options);
}
