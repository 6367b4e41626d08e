/**
 * The target rows of one verify window, each processed when it is first reached.
 *
 * Invariants: a row that is never asked for is never looked at; row i counts the emitted tokens and the drafts before it;
 * rows 0 … D-1 decide drafts (site `verify`), row D the bonus (site `bonus`); asking again gives the same,
 * and the window is asked for a row once.
 */
import type { SampledToken } from '../../sampler.js';
import type { Window } from '../../speculation.js';
import type { RowContext, ValidRow } from '../../validity.js';
import type { Distribution } from './distribution.js';
import { countToken, type EmittedCounts, type RowSampler } from './row-sampler.js';

export class WindowRows {
  private readonly raw: (Float32Array | undefined)[] = [];
  private readonly shaped: (Distribution | undefined)[] = [];
  /** The row whose processed form is in memory. */
  private current: { readonly index: number; readonly processed: ValidRow } | undefined;

  /** @param emitted counts before the window, the primary included. */
  constructor(
    private readonly sampler: RowSampler,
    private readonly window: Window,
    private readonly emitted: EmittedCounts,
  ) {}

  /** The context of a decision about row `index`. */
  contextOf(index: number, site = index < this.window.drafts.length ? 'verify' : 'bonus'): RowContext {
    const { phase, step } = this.window.context;
    return { site, phase, step: step + index };
  }

  /** Lowest id of the processed row's maximum. */
  argmax(index: number): number {
    return this.processed(index).argmax;
  }

  distribution(index: number): Distribution {
    return (this.shaped[index] ??= this.sampler.shape(this.processed(index), this.contextOf(index)));
  }

  /** An id of row `index` as a token. */
  say(index: number, id: number): SampledToken {
    return this.sampler.say(this.processed(index), id);
  }

  /** The token that plain decoding takes from row `index`. */
  choose(index: number): SampledToken {
    return this.sampler.choose(this.processed(index), this.contextOf(index));
  }

  /** @throws NonFiniteLogitsError */
  private processed(index: number): ValidRow {
    if (this.current?.index !== index) {
      const row = (this.raw[index] ??= this.window.row(index));
      this.current = { index, processed: this.sampler.process(row, this.countsAt(index), this.contextOf(index)) };
    }
    return this.current.processed;
  }

  private countsAt(index: number): EmittedCounts {
    if (!this.sampler.penalised) return this.emitted;
    const counts = new Map(this.emitted);
    for (const { tokenId } of this.window.drafts.slice(0, index)) countToken(counts, tokenId);
    return counts;
  }
}
