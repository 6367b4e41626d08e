/**
 * The activation laws that families choose from, by name. The name goes into plan keys and state stamps, so a law is
 * never changed under its name.
 */
import type { ActivationLaw } from '../engine/plan/builder.js';

/** Float32 activations: no rounding points at all. */
export const F32: ActivationLaw = { name: 'f32', act: 0, mtplx: 0, kvType: 0 };
/** bfloat16 at the rounding points of the model authors' reference. */
export const BF16: ActivationLaw = { name: 'bf16', act: 1, mtplx: 0, kvType: 1 };
