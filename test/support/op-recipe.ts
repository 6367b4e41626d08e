/** What a recipe is: how a random case of an op is written, with its sizes, its inputs, and what its variants turn on. */
import type { OpName, WeightDtype } from '../../src/engine/plan/ops.js';
import type { CaseWriter } from './op-case-writer.js';

export interface Recipe {
  readonly variants: number;
  readonly write: (c: CaseWriter, variant: number) => void;
}
export type RecipeTable = Readonly<Partial<Record<OpName, Recipe>>>;

export const EPS = 1e-6;
export const DTYPES: readonly WeightDtype[] = ['F32', 'BF16', 'F16'];
/** Tokens of an indexer block. */
export const BLOCK = 4;

/** `count` distinct numbers below `bound`, ascending. */
export function distinct(c: CaseWriter, count: number, bound: number): number[] {
  const left = Array.from({ length: bound }, (_, i) => i);
  const taken = Array.from({ length: count }, () => left.splice(c.below(left.length), 1)[0]!);
  return taken.sort((a, b) => a - b);
}

/** What indexSelect could have written: everything, or `budget` of the complete blocks. */
export function selections(c: CaseWriter, budget: number): number[] {
  return c.positions.flatMap((position) => {
    const complete = Math.floor((position + 1) / BLOCK);
    return complete <= budget ? [-1, ...Array<number>(budget).fill(7777)] : [budget, ...distinct(c, budget, complete)];
  });
}
