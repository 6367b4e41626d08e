/**
 * The MTPLX sampler law for a speculating request: draft choices, and the decision of a verified window.
 *
 * Invariants: a greedy target, and the coupled law, force greedy drafts, which draw nothing; draft rows are checked but
 * not penalised; a window counts its tokens as emitted when all of it is decided, so that a row that raises leaves the
 * counts as they were, with exactly the draws before it spent.
 */
import { PlumblineError } from '../../../errors.js';
import type { ResolvedSampling } from '../../resolve-sampling.js';
import type { SampledToken, SpeculativeOptions } from '../../sampler.js';
import type { AcceptanceLaw, DraftChoice, SpeculativeSampler, Window, WindowOutcome } from '../../speculation.js';
import type { RowContext } from '../../validity.js';
import type { UniformSource } from './choice.js';
import { MtplxSampler } from './request-sampler.js';
import { countToken, RowSampler, type EmittedCounts } from './row-sampler.js';
import { blockLaw, coupledLaw, greedyLaw, plainLaw, type WindowLaw } from './window-laws.js';
import { WindowRows } from './window-rows.js';

const NOTHING_EMITTED: EmittedCounts = new Map();

export class MtplxSpeculativeSampler extends MtplxSampler implements SpeculativeSampler {
  readonly greedy: boolean;
  readonly penalised: boolean;
  readonly acceptance: AcceptanceLaw;
  private readonly draftRows: RowSampler;
  readonly greedyDrafts: boolean;

  /** @param random the request's one generator; by default seeded as the settings say. */
  constructor(settings: ResolvedSampling, options: SpeculativeOptions, random?: UniformSource) {
    super(settings, options, random);
    const { acceptance, draftFilters = settings } = options;
    this.greedy = this.rows.lane === 'greedy';
    this.penalised = this.rows.penalised;
    this.acceptance = acceptance;
    this.draftRows = new RowSampler(settings, options, this.random, draftFilters);
    this.greedyDrafts = this.greedy || acceptance === 'coupled' || this.draftRows.lane === 'greedy';
  }

  draft(row: Float32Array, context: RowContext): DraftChoice {
    const processed = this.draftRows.process(row, NOTHING_EMITTED, context);
    if (this.greedyDrafts) return { tokenId: processed.token(processed.argmax) };
    const distribution = this.draftRows.shape(processed, context);
    return { tokenId: processed.token(distribution.draw(this.random)), distribution };
  }

  accept(window: Window): WindowOutcome {
    const { drafts, room, stopTokenIds } = window;
    if (room < drafts.length) {
      throw new PlumblineError('internal_error', `a window of ${drafts.length} drafts with room for ${room} tokens`);
    }
    const rows = new WindowRows(this.rows, window, this.counts);
    const law = this.lawOf(window, rows);
    const accepted: SampledToken[] = [];
    for (let index = 0; index < drafts.length; index++) {
      const decision = law.decide(index);
      if (decision.verdict === 'rejected') return this.close(accepted, decision.correction, 'residual_correction');
      accepted.push(decision.token);
      if (stopTokenIds.has(decision.token.tokenId)) return this.close(accepted);
    }
    return this.close(accepted, room > drafts.length ? rows.choose(drafts.length) : undefined);
  }

  private lawOf(window: Window, rows: WindowRows): WindowLaw {
    if (this.greedy) return greedyLaw(window, rows);
    if (this.acceptance === 'coupled') return coupledLaw(window, rows);
    return this.acceptance === 'block' && window.source === 'draft_head'
      ? blockLaw(window, rows, this.random)
      : plainLaw(window, rows, this.random);
  }

  /** The window is decided: its tokens count as emitted. */
  private close(
    accepted: readonly SampledToken[],
    token?: SampledToken,
    origin: 'residual_correction' | 'bonus' = 'bonus',
  ): WindowOutcome {
    for (const { tokenId } of accepted) countToken(this.counts, tokenId);
    if (token) countToken(this.counts, token.tokenId);
    return { accepted, next: token && { token, origin }, frontierRow: accepted.length };
  }
}
