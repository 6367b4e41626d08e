/**
 * Names of the plan buffers of this family that the host reads or fills, beside those of every family.
 */

/** Host-filled: the gathered n-gram rows [R, De] of a PLE layer. */
export const pleInput = (layer: number): string => `ple.${layer}.embedding`;
/** What a recurrence of a layer was fed [R, width], kept apart per layer so that it can be run again. */
export const stashName = (layer: number, part: StashPart): string => `stash.${layer}.${part}`;
export type StashPart = 'qkv' | 'a' | 'b' | 'ple';
