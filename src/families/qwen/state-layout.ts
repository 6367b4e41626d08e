/**
 * The state of a Qwen sequence: which parts every layer keeps, and where.
 *
 * Invariants: recurrent states and convolution tails are float32 and live in the fixed slab; keys, values, raw index keys
 * and block keys live in pages, in the element type of the activation law; a page holds whole index blocks. Token ids,
 * which the n-gram history is taken from, are kept by the state value itself.
 */
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { StateLayoutBuilder, type StateLayout } from '../../engine/state/layout.js';
import type { QwenConfig } from './config-types.js';

export interface LinearAttentionOffsets {
  readonly kind: 'linear_attention';
  /** float32 [K - 1, convChannels] */
  readonly convTail: number;
  /** float32 [Nv, Dk, Dv] */
  readonly recurrent: number;
}

export interface AttentionOffsets {
  readonly kind: 'attention';
  /** [Hkv, pageTokens, D] each, in the page. */
  readonly keys: number;
  readonly values: number;
  /** [pageTokens, Di] and [pageTokens / B, Di]; -1 without an indexer. */
  readonly rawIndexKeys: number;
  readonly blockKeys: number;
}

export interface LayerOffsets {
  readonly mixer: LinearAttentionOffsets | AttentionOffsets;
  /** float32 [(Kp - 1) * G, C * H]; -1 without PLE. */
  readonly pleTail: number;
}

export interface QwenStateLayout {
  readonly layout: StateLayout;
  readonly layers: readonly LayerOffsets[];
}

const MIN_PAGE_TOKENS = 64;

export function qwenStateLayout(config: QwenConfig, law: ActivationLaw): QwenStateLayout {
  const indexer = config.family === 'qwen4_exp' ? config.indexer : undefined;
  const block = indexer?.blockTokens ?? 1;
  const builder = new StateLayoutBuilder(block * Math.ceil(MIN_PAGE_TOKENS / block));
  const elementBytes = law.kvType === 1 ? 2 : 4;
  const layers = config.layerTypes.map((type, layer): LayerOffsets => {
    const pleTail = pleTailOffset(builder, config, layer);
    if (type === 'linear_attention') {
      const { valueHeads, keyHeadDim, valueHeadDim, convKernel, convChannels } = config.linearAttention;
      const convTail = builder.fixed(`layers.${layer}.conv`, 4 * (convKernel - 1) * convChannels);
      const recurrent = builder.fixed(`layers.${layer}.recurrent`, 4 * valueHeads * keyHeadDim * valueHeadDim);
      return { mixer: { kind: 'linear_attention', convTail, recurrent }, pleTail };
    }
    const { kvHeads, headDim } = config.attention;
    const rows = { groups: kvHeads, tokensPerRow: 1, rowBytes: elementBytes * headDim };
    const keys = builder.page(`layers.${layer}.keys`, rows);
    const values = builder.page(`layers.${layer}.values`, rows);
    if (!indexer) return { mixer: { kind: 'attention', keys, values, rawIndexKeys: -1, blockKeys: -1 }, pleTail };
    const indexRow = { groups: 1, rowBytes: elementBytes * indexer.headDim };
    const rawIndexKeys = builder.page(`layers.${layer}.rawIndexKeys`, { ...indexRow, tokensPerRow: 1 });
    const blockKeys = builder.page(`layers.${layer}.blockKeys`, { ...indexRow, tokensPerRow: block });
    return { mixer: { kind: 'attention', keys, values, rawIndexKeys, blockKeys }, pleTail };
  });
  return { layout: builder.finish(), layers };
}

function pleTailOffset(builder: StateLayoutBuilder, config: QwenConfig, layer: number): number {
  if (config.family !== 'qwen4_exp' || !config.ple?.layers.includes(layer)) return -1;
  const { convKernel, ngramSize } = config.ple;
  const channels = config.hyperConnections.streams * config.hiddenSize;
  return builder.fixed(`layers.${layer}.ple`, 4 * (convKernel - 1) * ngramSize * channels);
}
