/**
 * The state of a DeepSeek V4 sequence: which parts every layer keeps, and where.
 *
 * Invariants: rolling parts are rings by position in the fixed slab, float32, rewritten whole by every forward: the window
 * of rows that are key and value, and the raw rows that compressors still need; rows that are final once they are there
 * (compressed rows, index keys) live in pages, in the element type of the activation law; a page holds whole windows of
 * every kind of layer.
 */
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { StateLayoutBuilder, type StateLayout } from '../../engine/state/layout.js';
import type { DeepseekConfig } from './config-types.js';
import { pageUnit } from './layer-kinds.js';

export interface CompressorOffsets {
  /** float32 [(1 + overlap) * rate, 2, (1 + overlap) * width], in the slab. */
  readonly ring: number;
  /** [pageTokens / rate, width], in the page. */
  readonly rows: number;
}

export interface LayerOffsets {
  /** float32 [W, hd], in the slab. */
  readonly window: number;
  /** In the layers that compress. */
  readonly compressor?: CompressorOffsets | undefined;
  /** In the layers that choose. */
  readonly indexer?: CompressorOffsets | undefined;
}

export interface DeepseekStateLayout {
  readonly layout: StateLayout;
  readonly layers: readonly LayerOffsets[];
}

const MIN_PAGE_TOKENS = 64;

export function deepseekStateLayout(config: DeepseekConfig, law: ActivationLaw): DeepseekStateLayout {
  const unit = pageUnit(config.rates, config.layerTypes);
  const builder = new StateLayoutBuilder(unit * Math.ceil(MIN_PAGE_TOKENS / unit));
  const { headDim, window } = config.attention;
  const elementBytes = law.kvType === 1 ? 2 : 4;
  const compressor = (name: string, width: number, rate: number, overlap: 0 | 1): CompressorOffsets => ({
    ring: builder.fixed(`${name}.ring`, 4 * (1 + overlap) * rate * 2 * (1 + overlap) * width),
    rows: builder.page(`${name}.rows`, { groups: 1, tokensPerRow: rate, rowBytes: elementBytes * width }),
  });
  const layers = config.layerTypes.map((type, layer): LayerOffsets => {
    const prefix = `layers.${layer}`;
    const windowAt = builder.fixed(`${prefix}.window`, 4 * window * headDim);
    if (type === 'sliding_attention') return { window: windowAt };
    const rate = config.rates[type];
    if (type === 'heavily_compressed_attention') {
      return { window: windowAt, compressor: compressor(`${prefix}.compressor`, headDim, rate, 0) };
    }
    return {
      window: windowAt,
      compressor: compressor(`${prefix}.compressor`, headDim, rate, 1),
      indexer: compressor(`${prefix}.indexer`, config.indexer!.headDim, rate, 1),
    };
  });
  return { layout: builder.finish(), layers };
}
