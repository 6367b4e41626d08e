/**
 * Whether a stored state may be used where another stamp is asked for. Rows depend on everything that the stamp names, so
 * equality is required, but for the gate policy in the autoregressive lane: its rows are made by no forward that the policy
 * touches, so any known policy and none are as good as the own; an unknown one may mean something else and is refused.
 */
import type { RestoreReason, StateStamp } from '../types.js';

/** A stamp as it was stored: what older writers did not know is missing. */
export type StoredStamp = Omit<StateStamp, 'lane'> & { readonly lane?: StateStamp['lane'] | undefined };

const EQUAL = ['family', 'modelHash', 'activationLaw', 'floatLaw', 'engineLaw', 'layoutHash'] as const;

/** A header without a lane counts as the speculative one. */
export const laneOf = (stamp: StoredStamp): StateStamp['lane'] => stamp.lane ?? 'mtp';

/** Why a state of stamp `stored` cannot serve one of stamp `wanted`; undefined when it can. */
export function obstacle(
  stored: StoredStamp,
  wanted: StateStamp,
  knownGatePolicies: ReadonlySet<string>,
): RestoreReason | undefined {
  const differs = (key: (typeof EQUAL)[number]): boolean => stored[key] !== wanted[key];
  if (EQUAL.some((key) => key !== 'layoutHash' && differs(key))) return 'stamp_mismatch';
  // The lanes have layouts of their own: of two reasons that is the nearer one.
  if (laneOf(stored) !== wanted.lane) return 'lane_mismatch';
  if (differs('layoutHash')) return 'stamp_mismatch';
  if (wanted.lane === 'ar') {
    const { gatePolicy } = stored;
    return gatePolicy === undefined || knownGatePolicies.has(gatePolicy) ? undefined : 'gate_policy_mismatch';
  }
  if (stored.gatePolicy !== wanted.gatePolicy) return 'gate_policy_mismatch';
  return stored.draftHead === wanted.draftHead ? undefined : 'stamp_mismatch';
}

/** Stamps of equal keys are equal. */
export function stampKey(stamp: StoredStamp): string {
  return JSON.stringify([...EQUAL.map((key) => stamp[key]), laneOf(stamp), stamp.gatePolicy ?? null, stamp.draftHead]);
}
