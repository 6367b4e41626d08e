/**
 * Names of the plan buffers that the host reads, the same in every family.
 */

/** The residual [R, hiddenWidth]: behind the plan, the hidden streams of every row. */
export const RESIDUAL = 'residual';
/** The head's input [M, H]. */
export const HEAD_INPUT = 'out.x';
/** The logits [M, V]. */
export const LOGITS = 'logits';
/** The tap before layer n, [R, hiddenWidth]. */
export const tapName = (layer: number): string => `tap.${layer}`;
