/**
 * The DS4 sampler law as served: one row, one token, whatever the row holds; plain decoding and speculation.
 *
 * Invariants: the generator belongs to the request and only a draw moves it; a row that another law would refuse is
 * counted and told, and changes nothing; a guide may force a greedy choice for one token, which then draws nothing; a
 * speculative window chooses every token as plain decoding would, so drafts change no token and no draw.
 */
import { PlumblineError } from '../../../errors.js';
import { Xorshift64Star } from '../../rng/xorshift64star.js';
import type { ResolvedSampling } from '../../resolve-sampling.js';
import { RowWatch, type LogitsWarning } from '../../row-watch.js';
import type { RequestSampler, SampledToken, SamplerOptions } from '../../sampler.js';
import type { DraftChoice, SpeculativeSampler, Window, WindowOutcome } from '../../speculation.js';
import { unjudgedToken, type RowContext } from '../../validity.js';
import { chooseId } from './choose.js';
import type { Ds4Constants } from './constants.js';
import { settleKnobs, type Ds4Knobs } from './knobs.js';
import { readLogprobs } from './logprobs.js';
import { greedyIndex } from './scans.js';

export class Ds4Sampler implements RequestSampler {
  readonly seed: bigint;
  readonly #knobs: Ds4Knobs;
  readonly #random: Xorshift64Star;
  readonly #watch = new RowWatch();

  constructor(
    settings: ResolvedSampling,
    protected readonly options: SamplerOptions,
    protected readonly law: Ds4Constants,
  ) {
    this.seed = settings.seed;
    this.#knobs = settleKnobs(settings, options.vocabSize, law);
    this.#random = new Xorshift64Star(settings.seed, law.random);
  }

  get warning(): LogitsWarning | undefined {
    return this.#watch.warning;
  }

  get randomState(): bigint {
    return this.#random.state;
  }

  /** Whether nothing is drawn. */
  get greedy(): boolean {
    return this.#knobs.temperature <= 0;
  }

  next(row: Float32Array, context: RowContext): SampledToken {
    const { vocabSize, guide, topLogprobs } = this.options;
    if (row.length !== vocabSize) {
      throw new PlumblineError('internal_error', `a row of ${row.length} logits for a vocabulary of ${vocabSize}`);
    }
    this.#watch.see(row, context);
    const id =
      guide?.forcesGreedy === true
        ? greedyIndex(row, this.law.start)
        : chooseId(row, this.#knobs, this.#random, this.law);
    const tokenId = unjudgedToken(row, id);
    guide?.push(tokenId);
    if (topLogprobs === undefined) return { tokenId };
    const { chosen, top } = readLogprobs(row, id, topLogprobs, this.law);
    return { tokenId, logprob: chosen, topLogprobs: top };
  }

  check(row: Float32Array, context: RowContext): void {
    this.#watch.see(row, context);
  }
}

export class Ds4SpeculativeSampler extends Ds4Sampler implements SpeculativeSampler {
  readonly penalised = false;
  readonly acceptance = 'coupled';
  readonly greedyDrafts = true;

  /** The greedy token of the draft head's row. */
  draft(row: Float32Array): DraftChoice {
    return { tokenId: greedyIndex(row, this.law.start) };
  }

  accept({ drafts, row, room, stopTokenIds, context }: Window): WindowOutcome {
    if (room < drafts.length) {
      throw new PlumblineError('internal_error', `a window of ${drafts.length} drafts with room for ${room} tokens`);
    }
    const accepted: SampledToken[] = [];
    const choose = (index: number, site: string): SampledToken =>
      this.next(row(index), { ...context, site, step: context.step + index });
    for (const [index, draft] of drafts.entries()) {
      const token = choose(index, 'verify');
      if (Number(token.tokenId) !== Number(draft.tokenId)) {
        return { accepted, next: { token, origin: 'residual_correction' }, frontierRow: index };
      }
      accepted.push(token);
      if (stopTokenIds.has(token.tokenId)) return { accepted, frontierRow: accepted.length };
    }
    if (room === drafts.length) return { accepted, frontierRow: accepted.length };
    return { accepted, next: { token: choose(drafts.length, 'bonus'), origin: 'bonus' }, frontierRow: accepted.length };
  }
}
