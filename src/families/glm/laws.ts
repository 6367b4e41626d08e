/**
 * What the GLM family hands to the rest of the house as data: its activation law, its sampling law and defaults.
 */
import type { FamilyLaws } from '../../engine/model.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import type { GateLowering } from '../../engine/plan/phase.js';
import { F32 } from '../laws.js';

/** Float32 alone: nothing published judges another one. */
export const GLM_ACTIVATION_LAWS: readonly ActivationLaw[] = [F32];
export const NO_BF16 =
  'nothing published judges a bfloat16 forward of this family, so only float32 activations are offered; the weights ' +
  'stay in bfloat16';

/** No gate of this family depends on the phase. */
export const GLM_LOWERING: GateLowering = 'standalone';

export const GLM_LAWS: FamilyLaws = {
  sampler: 'ds4',
  samplingDefaults: { temperature: 1, topP: 1, topK: 0, minP: 0.05 },
  invalidRow: 'ds4-fallback',
  prefixKey: 'text',
  chat: 'argument-pairs',
};
