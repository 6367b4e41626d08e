/**
 * What the family hands to the rest of the house as data: activation laws, sampling defaults, and what an invalid row does.
 *
 * Invariants: everything is float32 from the projections on, so there is one law; nothing in a forward depends on its phase.
 */
import type { FamilyLaws } from '../../engine/model.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { F32 } from '../laws.js';

export const DEEPSEEK_ACTIVATION_LAWS: readonly ActivationLaw[] = [F32];

/** Why no other activation law is offered. */
export const ONLY_F32 =
  'the reference of this family has no working bfloat16 forward to take rounding points from, so float32 activations on ' +
  'the stored weights are its only law';

/** The sampler is DS4's own, and so are its defaults; it answers an invalid row with an id instead of an error. */
export const DEEPSEEK_LAWS: FamilyLaws = {
  sampler: 'ds4',
  samplingDefaults: { temperature: 1, topP: 1, topK: 0, minP: 0.05 },
  invalidRow: 'ds4-fallback',
  prefixKey: 'text',
  modelAliases: [
    { name: 'deepseek-chat', thinking: false },
    { name: 'deepseek-reasoner', thinking: true },
  ],
  chat: 'dsml',
};
