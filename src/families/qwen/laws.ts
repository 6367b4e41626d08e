/**
 * What the Qwen families hand to the rest of the house as data: activation laws, gate lowerings by phase, sampling
 * defaults, and what an invalid row does.
 *
 * Invariants: the lowering of a site follows from phase and policy alone, never from row counts; everything named here is
 * in the plan key, so two forwards under different laws never share a plan.
 */
import { PlumblineError } from '../../errors.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import type { GateLowering, GatePolicy, Phase } from '../../engine/plan/phase.js';
import type { FamilyLaws } from '../../engine/model.js';
import { BF16, F32 } from '../laws.js';

/** bfloat16 at MTPLX's own rounding points: norms round before the gain, rope once at its end, sigmoids from the table. */
const BF16_MTPLX: ActivationLaw = { name: 'bf16-mtplx', act: 1, mtplx: 1, kvType: 1 };

export const QWEN_ACTIVATION_LAWS: readonly ActivationLaw[] = [F32, BF16, BF16_MTPLX];

/**
 * The lowering class of a phase: MTPLX fuses the gates of its verify forwards, and only those.
 *
 * @throws internal_error for anything that is no phase: it must not pass for one of them
 */
export function phaseLowering(phase: Phase): GateLowering {
  switch (phase) {
    case 'verify':
    case 'repair':
    case 'final-primary':
      return 'fused';
    case 'prefill':
    case 'decode':
    case 'postcommit':
    case 'draft':
      return 'standalone';
    default:
      throw new PlumblineError('internal_error', `${String(phase satisfies never)} is no phase of a forward`);
  }
}

/** Sites whose sigmoid may depend on the phase. */
export type GateSite = 'attention-output' | 'injection' | 'shared-expert' | 'ple-value';

/** How the sigmoid of `site` is computed in a forward of this lowering class. */
export function siteLowering(site: GateSite, lowering: GateLowering, policy: GatePolicy): GateLowering {
  switch (policy) {
    case 'uniform':
      return 'standalone';
    case 'strict':
      return site === 'attention-output' || site === 'injection' ? lowering : 'standalone';
    case 'mtplx':
      return lowering;
  }
}

/** Version of the sites and classes above, by which stored states are told apart. */
export const GATE_LAW = 'qwen-verify-gate-1';

/** Sampling and error laws. `qwen4_exp` has its own defaults; other models of the family take the class defaults. */
export function qwenLaws(family: 'qwen4_exp' | 'qwen3_5'): FamilyLaws {
  return {
    sampler: 'mtplx',
    samplingDefaults: { temperature: family === 'qwen4_exp' ? 1 : 0.6, topP: 0.95, topK: 20 },
    invalidRow: 'raise',
    prefixKey: 'tokens',
  };
}
