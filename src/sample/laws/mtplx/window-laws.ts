/**
 * How a window's drafts are decided, one after the other: the laws of acceptance.
 *
 * Invariants: `decide(i)` is called for i = 0, 1, … and not behind a rejection; it draws nothing before the rows that it
 * needs were checked; per depth the sampled laws spend one coin, and one choice more at a rejection; the coupled law
 * spends one choice and no coin; greedy spends nothing. A draft without mass under the target is never accepted.
 */
import type { SampledToken } from '../../sampler.js';
import type { Window } from '../../speculation.js';
import { acceptProbability, residual } from './acceptance.js';
import { blockLadder, blockResidual } from './block-law.js';
import type { UniformSource } from './choice.js';
import { Distribution } from './distribution.js';
import type { WindowRows } from './window-rows.js';

export type Decision =
  | { readonly verdict: 'accepted'; readonly token: SampledToken }
  /** Without a correction the row stays for the next primary. */
  | { readonly verdict: 'rejected'; readonly correction: SampledToken | undefined };

export interface WindowLaw {
  /**
   * Decides draft `index`.
   * @throws NonFiniteLogitsError for a row that this decision reaches.
   */
  decide(index: number): Decision;
}

const accepted = (token: SampledToken): Decision => ({ verdict: 'accepted', token });
const rejected = (correction?: SampledToken): Decision => ({ verdict: 'rejected', correction });

/** A draft is accepted when it is the row's maximum; a rejection emits nothing. */
export function greedyLaw({ drafts }: Window, rows: WindowRows): WindowLaw {
  return {
    decide: (index) => {
      const id = drafts[index]!.tokenId;
      return rows.argmax(index) === id ? accepted(rows.say(index, id)) : rejected();
    },
  };
}

/** The row's token is drawn as plain decoding draws it; a draft is accepted when it is that token. */
export function coupledLaw({ drafts }: Window, rows: WindowRows): WindowLaw {
  return {
    decide: (index) => {
      const token = rows.choose(index);
      return token.tokenId === drafts[index]!.tokenId ? accepted(token) : rejected(token);
    },
  };
}

/** The law that a draft was drawn from. */
export function draftLaw({ distribution, tokenId }: Window['drafts'][number]): Distribution {
  return distribution ?? Distribution.oneHot(tokenId);
}

interface Coins {
  threshold(index: number): number;
  residual(index: number): Distribution;
}

function tossing({ drafts }: Window, rows: WindowRows, random: UniformSource, coins: Coins): WindowLaw {
  return {
    decide: (index) => {
      const threshold = coins.threshold(index);
      const u = random.nextDouble();
      // The generator can give exactly 0, which is no reason to accept what the target excludes.
      if (u <= threshold && threshold > 0) return accepted(rows.say(index, drafts[index]!.tokenId));
      return rejected(rows.say(index, coins.residual(index).draw(random)));
    },
  };
}

/** Each draft is accepted with probability min(1, p / q); a rejection draws from (p - q)+. */
export function plainLaw(window: Window, rows: WindowRows, random: UniformSource): WindowLaw {
  const drafted = (index: number): Distribution => draftLaw(window.drafts[index]!);
  return tossing(window, rows, random, {
    threshold: (index) => {
      const { tokenId } = window.drafts[index]!;
      return acceptProbability(rows.distribution(index).probabilityOf(tokenId), drafted(index).probabilityOf(tokenId));
    },
    residual: (index) =>
      residual(rows.distribution(index), drafted(index), rows.contextOf(index, 'residual_correction')),
  });
}

/**
 * Drafts are accepted jointly. Reaches every row that decides a draft, before the first coin.
 * @throws NonFiniteLogitsError for the first of them that is invalid.
 */
export function blockLaw(window: Window, rows: WindowRows, random: UniformSource): WindowLaw {
  const depths = window.drafts.map((choice, index) => ({
    target: rows.distribution(index),
    draft: draftLaw(choice),
    tokenId: choice.tokenId,
  }));
  const ladder = blockLadder(depths);
  return tossing(window, rows, random, {
    threshold: (index) => ladder.coin[index]!,
    residual: (index) => blockResidual(ladder, index, depths[index]!, rows.contextOf(index, 'residual_correction')),
  });
}
