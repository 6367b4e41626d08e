/**
 * The state of a Qwen sequence: which parts every layer keeps, and where.
 *
 * Invariants: recurrent states and convolution tails are float32 and live in the fixed slab; keys, values, raw index keys
 * and block keys live in pages, in the element type of the activation law; a page holds whole index blocks. Token ids,
 * which the n-gram history is taken from, are kept by the state value itself.
 */
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { StateLayoutBuilder, type StateLayout } from '../../engine/state/layout.js';
import type { Qwen4Config, QwenConfig } from './config-types.js';

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
  const builder = new StateLayoutBuilder(pageTokens(config));
  const layers = config.layerTypes.map((type, layer): LayerOffsets => {
    const pleTail = pleTailOffset(builder, config, layer);
    if (type === 'linear_attention') {
      const { valueHeads, keyHeadDim, valueHeadDim, convKernel, convChannels } = config.linearAttention;
      const convTail = builder.fixed(`layers.${layer}.conv`, 4 * (convKernel - 1) * convChannels);
      const recurrent = builder.fixed(`layers.${layer}.recurrent`, 4 * valueHeads * keyHeadDim * valueHeadDim);
      return { mixer: { kind: 'linear_attention', convTail, recurrent }, pleTail };
    }
    return { mixer: attentionOffsets(builder, config, law, `layers.${layer}`), pleTail };
  });
  return { layout: builder.finish(), layers };
}

/** The draft head's own cache: the pages of its one attention layer. */
export function draftStateLayout(
  config: Qwen4Config,
  law: ActivationLaw,
): { layout: StateLayout; head: AttentionOffsets } {
  const builder = new StateLayoutBuilder(pageTokens(config));
  const head = attentionOffsets(builder, config, law, 'mtp');
  return { layout: builder.finish(), head };
}

function pageTokens(config: QwenConfig): number {
  const block = (config.family === 'qwen4_exp' ? config.indexer?.blockTokens : undefined) ?? 1;
  return block * Math.ceil(MIN_PAGE_TOKENS / block);
}

function attentionOffsets(
  builder: StateLayoutBuilder,
  config: QwenConfig,
  law: ActivationLaw,
  prefix: string,
): AttentionOffsets {
  const { kvHeads, headDim } = config.attention;
  const indexer = config.family === 'qwen4_exp' ? config.indexer : undefined;
  const elementBytes = law.kvType === 1 ? 2 : 4;
  const rows = { groups: kvHeads, tokensPerRow: 1, rowBytes: elementBytes * headDim };
  const keys = builder.page(`${prefix}.keys`, rows);
  const values = builder.page(`${prefix}.values`, rows);
  if (!indexer) return { kind: 'attention', keys, values, rawIndexKeys: -1, blockKeys: -1 };
  const indexRow = { groups: 1, rowBytes: elementBytes * indexer.headDim };
  const rawIndexKeys = builder.page(`${prefix}.rawIndexKeys`, { ...indexRow, tokensPerRow: 1 });
  const blockKeys = builder.page(`${prefix}.blockKeys`, { ...indexRow, tokensPerRow: indexer.blockTokens });
  return { kind: 'attention', keys, values, rawIndexKeys, blockKeys };
}

function pleTailOffset(builder: StateLayoutBuilder, config: QwenConfig, layer: number): number {
  if (config.family !== 'qwen4_exp' || !config.ple?.layers.includes(layer)) return -1;
  const { convKernel, ngramSize } = config.ple;
  const channels = config.hyperConnections.streams * config.hiddenSize;
  return builder.fixed(`layers.${layer}.ple`, 4 * (convKernel - 1) * ngramSize * channels);
}
