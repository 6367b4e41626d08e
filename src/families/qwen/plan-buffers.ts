/**
 * Names of the plan buffers that the host reads or fills.
 */

/** The residual [R, C * H]: behind the plan, the hidden streams of every row. */
export const RESIDUAL = 'residual';
/** The head's input [M, H]. */
export const HEAD_INPUT = 'out.x';
/** The logits [M, V]. */
export const LOGITS = 'logits';
/** The tap before layer n. */
export const tapName = (layer: number): string => `tap.${layer}`;
/** Host-filled: the gathered n-gram rows [R, De] of a PLE layer. */
export const pleInput = (layer: number): string => `ple.${layer}.embedding`;
/** What a recurrence of a layer was fed [R, width], kept apart per layer so that it can be run again. */
export const stashName = (layer: number, part: StashPart): string => `stash.${layer}.${part}`;
export type StashPart = 'qkv' | 'a' | 'b' | 'ple';
