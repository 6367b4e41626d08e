/**
 * The commit of a partly accepted window as a plan: the recurrences and convolutions of every layer, run again over the
 * kept rows of what they were fed in the verify forward. Keys and values need nothing: pages are cut by length.
 *
 * Invariants: the ops and their inputs are those of the verify plan, so the states are, byte for byte, what a forward of
 * the kept tokens alone would have left; no gate is computed again, so the lowering plays no part.
 */
import type { Plan } from '../../engine/plan/builder.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { stashName, type StashPart } from './plan-buffers.js';
import { PlanContext, type QwenPlanOptions } from './plan-context.js';
import { recurrence } from './plan-mixers.js';
import { ngramConvolution } from './plan-residual.js';
import type { QwenConfig } from './config-types.js';

/** The stash buffers of a model: their names and widths. */
export function stashBuffers(config: QwenConfig): { readonly name: string; readonly width: number }[] {
  const { convChannels, valueHeads } = config.linearAttention;
  const streams = config.family === 'qwen4_exp' ? config.hyperConnections.streams : 1;
  const widths: Record<StashPart, number> = {
    qkv: convChannels,
    a: valueHeads,
    b: valueHeads,
    ple: streams * config.hiddenSize,
  };
  return config.layerTypes.flatMap((type, layer) => {
    const parts: StashPart[] = type === 'linear_attention' ? ['qkv', 'a', 'b'] : [];
    if (config.family === 'qwen4_exp' && config.ple?.layers.includes(layer)) parts.push('ple');
    return parts.map((part) => ({ name: stashName(layer, part), width: widths[part] }));
  });
}

export function buildCommitPlan(options: QwenPlanOptions, weights: WeightTable): Plan {
  const c = new PlanContext(options, weights);
  c.bound.layers.forEach((layer, index) => {
    const offsets = c.state.layers[index]!;
    if (layer.ple) ngramConvolution(c, layer.ple, index);
    if (layer.mixer.kind === 'linear_attention' && offsets.mixer.kind === 'linear_attention') {
      recurrence(c, layer.mixer, offsets.mixer, index);
    }
  });
  return c.builder.finish();
}
