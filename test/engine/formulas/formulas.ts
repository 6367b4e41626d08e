/** The float64 formula of every op, from the models' specification: what the reference ops are judged by. */
import type { OpName } from '../../../src/engine/plan/ops.js';
import { ATTENTION_FORMULAS } from './attention.js';
import type { CaseView } from './case-view.js';
import { LATENT_FORMULAS } from './latent.js';
import { MANIFOLD_FORMULAS } from './manifold.js';
import { MOE_FORMULAS } from './moe.js';
import { ROW_FORMULAS } from './rows.js';
import { SEQUENCE_FORMULAS } from './sequence.js';

/** Expected numbers; NaN where the op says nothing about the element. */
export type Expected = readonly number[];
/** From a case to its expected outputs, by the names of runOpCase. */
export type Formula = (c: CaseView) => Readonly<Record<string, Expected>>;
export type FormulaTable = Readonly<Partial<Record<OpName, Formula>>>;

export const FORMULAS: FormulaTable = {
  ...ROW_FORMULAS,
  ...SEQUENCE_FORMULAS,
  ...ATTENTION_FORMULAS,
  ...MOE_FORMULAS,
  ...LATENT_FORMULAS,
  ...MANIFOLD_FORMULAS,
};
