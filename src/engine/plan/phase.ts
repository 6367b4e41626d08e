/**
 * The phase of a forward, as an explicit argument from the loop that asks for it. The phase, never the number of rows,
 * decides which lowering the phase-dependent gates take; the resulting class is part of every plan key.
 */

export type Phase = 'prefill' | 'decode' | 'verify' | 'repair' | 'final-primary' | 'postcommit' | 'draft';

export const PHASES: readonly Phase[] = [
  'prefill',
  'decode',
  'verify',
  'repair',
  'final-primary',
  'postcommit',
  'draft',
];

/** `standalone`: the sigmoid runs alone; `fused`: it is fused with its multiply, with the fast exponential. */
export type GateLowering = 'standalone' | 'fused';

/** strict: the two proven sites follow the phase; mtplx: four sites do; uniform: none does. */
export type GatePolicy = 'strict' | 'mtplx' | 'uniform';

export const GATE_POLICIES: readonly GatePolicy[] = ['strict', 'mtplx', 'uniform'];
