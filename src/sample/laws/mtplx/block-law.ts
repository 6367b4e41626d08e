/**
 * The block-verification law: drafts of a window are accepted jointly, so that more of them survive than when each is
 * tested alone, and the emitted tokens still follow the target exactly, at any depth.
 *
 * With p_d and q_d the target and draft laws behind the drafts before depth d (1-based), x_d the draft:
 *   budget_d = min(reach_(d-1), min(1, budget_(d-1) * p_d(x_d) / q_d(x_d)))     the mass that prefix d may keep
 *   reach_d  = what is kept of it when the drafts behind are looked ahead at: the budget is poured over q_(d+1), filling
 *              up to reach_(d-1), so that its mean over x_(d+1) is budget_d     ("water-filled")
 *   coin_d   = reach_d / reach_(d-1);   a rejection draws from (budget_(d-1) * p_d - reach_(d-2) * q_d)+
 * Invariants: 0 <= reach_d <= reach_(d-1) <= 1; a budget that fills everything takes the exact branch reach_d =
 * reach_(d-1), because solving would lose the last bit; nothing is drawn here.
 */
import type { RowContext } from '../../validity.js';
import { pairwiseSum } from '../../pairwise-sum.js';
import { acceptRatio, massesAt, positivePart } from './acceptance.js';
import { Distribution, divideBy } from './distribution.js';

/** One depth of a window: the target and draft laws, and the drafted token. */
export interface DraftedDepth {
  readonly target: Distribution;
  readonly draft: Distribution;
  readonly tokenId: number;
}

/** One entry a depth. What lies behind a coin of 0 cannot be reached and means nothing. */
export interface BlockLadder {
  /** p(x) / q(x). */
  readonly rho: readonly number[];
  readonly budget: readonly number[];
  readonly reach: readonly number[];
  /** Accept when u <= coin. */
  readonly coin: readonly number[];
  /** Weight of the target in the residual: the budget of the depth before. */
  readonly scale: readonly number[];
  /** Weight of the draft law in the residual: the reach two depths before. */
  readonly draftScale: readonly number[];
}

/** The mass of an id before the water: min(1, budget * p / q); 0 outside the support of q. */
function ground(budget: number, p: number, q: number): number {
  return q > 0 ? Math.min(1, (budget * p) / q) : 0;
}

function groundOf(budget: number, { target, draft, tokenId }: DraftedDepth): number {
  return ground(budget, target.probabilityOf(tokenId), draft.probabilityOf(tokenId));
}

/** The smallest level >= 0 with sum over y of q(y) * min(cap, ground(y) + level) = budget, for budget < cap. */
function waterLevel(budget: number, cap: number, { target, draft }: DraftedDepth): number {
  const p = massesAt(target, draft.ids);
  const shore = Array.from(draft.probs, (q, at) => ({ q, height: ground(budget, p[at]!, q) })).sort(
    (a, b) => a.height - b.height,
  );
  // Ascending, so that sums over the lowest `count` ids are running sums: their mass, and their mean height.
  const mass = [0];
  const mean = [0];
  for (const [at, { q, height }] of shore.entries()) {
    mass.push(mass[at]! + q);
    mean.push(mean[at]! + q * height);
  }
  // The highest ground reaches the cap first.
  for (let count = shore.length; count > 0; count--) {
    const drowned = mass[shore.length]! - mass[count]!;
    const level = (budget - drowned * cap - mean[count]!) / mass[count]!;
    if (level <= cap - shore[count - 1]!.height) return Math.max(0, level);
  }
  return Math.max(0, cap - shore[0]!.height);
}

/**
 * The ladder of a window; it depends on rows and drafts only.
 * @param window depth 1 first; distributions normalised.
 */
export function blockLadder(window: readonly DraftedDepth[]): BlockLadder {
  const rho: number[] = [];
  const budget: number[] = [];
  const reach: number[] = [];
  const coin: number[] = [];
  const scale: number[] = [];
  const draftScale: number[] = [];
  for (const [at, depth] of window.entries()) {
    const budgetBefore = budget[at - 1] ?? 1;
    const cap = reach[at - 1] ?? 1;
    const ratio = acceptRatio(depth.target.probabilityOf(depth.tokenId), depth.draft.probabilityOf(depth.tokenId));
    const mine = Math.min(cap, Math.min(1, budgetBefore * ratio));
    const next = window[at + 1];
    const kept =
      next === undefined ? mine : mine >= cap ? cap : Math.min(cap, groundOf(mine, next) + waterLevel(mine, cap, next));
    rho.push(ratio);
    budget.push(mine);
    reach.push(kept);
    coin.push(cap > 0 ? kept / cap : 1);
    scale.push(budgetBefore);
    draftScale.push(reach[at - 2] ?? 1);
  }
  return { rho, budget, reach, coin, scale, draftScale };
}

/**
 * What a rejection at depth index `at` draws from: normalise((scale * p - draftScale * q)+), p normalised once more; p
 * itself when nothing is left, which is rounding alone, for a rejection is impossible then.
 */
export function blockResidual(
  ladder: BlockLadder,
  at: number,
  { target, draft }: Pick<DraftedDepth, 'target' | 'draft'>,
  context: RowContext,
): Distribution {
  const { scale, draftScale } = ladder;
  const sum = pairwiseSum(target.probs);
  const q = massesAt(draft, target.ids);
  const [ids, masses] = positivePart(
    target.ids,
    target.probs.map((p, i) => scale[at]! * (p / sum) - draftScale[at]! * q[i]!),
  );
  if (ids.length === 0) return target;
  return Distribution.sparse(ids, divideBy(masses, pairwiseSum(masses)), context);
}
