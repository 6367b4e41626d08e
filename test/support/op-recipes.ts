/** The recipe of every op of the table. */
import type { OpName } from '../../src/engine/plan/ops.js';
import type { Recipe } from './op-recipe.js';
import { LATENT_RECIPES } from './op-recipes-latent.js';
import { MIXER_RECIPES } from './op-recipes-mixers.js';
import { MOE_RECIPES } from './op-recipes-moe.js';
import { ROW_RECIPES } from './op-recipes-rows.js';

export const OP_RECIPES: Readonly<Record<OpName, Recipe>> = {
  ...ROW_RECIPES,
  ...MIXER_RECIPES,
  ...MOE_RECIPES,
  ...LATENT_RECIPES,
};
