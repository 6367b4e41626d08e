/**
 * The state of a GLM sequence: which parts every layer keeps, and where.
 *
 * Invariants: convolution tails, recurrent states and the raw rows of the unfinished pool are float32 and live in the
 * fixed slab; latent rows and pooled keys live in pages, in the element type of the activation law; a page holds whole
 * pools.
 */
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { StateLayoutBuilder, type StateLayout } from '../../engine/state/layout.js';
import type { GlmConfig } from './config-types.js';

export interface KdaOffsets {
  readonly kind: 'kda';
  /** float32 [Kc - 1, 3Q] */
  readonly convTail: number;
  /** float32 [nl, dl, dl] */
  readonly recurrent: number;
}

export interface DsaOffsets {
  readonly kind: 'dsa';
  /** [pageTokens, C] in the page. */
  readonly latent: number;
  /** float32 [K, 2, dI] in the slab, and [pageTokens / K, dI] in the page; -1 in a shared layer. */
  readonly pending: number;
  readonly pools: number;
}

export type GlmLayerOffsets = KdaOffsets | DsaOffsets;

export interface GlmStateLayout {
  readonly layout: StateLayout;
  readonly layers: readonly GlmLayerOffsets[];
}

const MIN_PAGE_TOKENS = 64;

export function glmStateLayout(config: GlmConfig, law: ActivationLaw): GlmStateLayout {
  const { poolTokens, headDim: indexDim } = config.indexer;
  const { heads, headDim, convKernel } = config.kda;
  const builder = new StateLayoutBuilder(poolTokens * Math.ceil(MIN_PAGE_TOKENS / poolTokens));
  const elementBytes = law.kvType === 1 ? 2 : 4;
  const layers = config.layerTypes.map((type, layer): GlmLayerOffsets => {
    const name = (part: string): string => `layers.${layer}.${part}`;
    if (type === 'kda') {
      return {
        kind: 'kda',
        convTail: builder.fixed(name('conv'), 4 * (convKernel - 1) * 3 * heads * headDim),
        recurrent: builder.fixed(name('recurrent'), 4 * heads * headDim * headDim),
      };
    }
    const row = (tokensPerRow: number, dim: number) => ({ groups: 1, tokensPerRow, rowBytes: elementBytes * dim });
    const latent = builder.page(name('latent'), row(1, config.dsa.latentDim));
    if (config.indexerTypes[layer] === 'shared') return { kind: 'dsa', latent, pending: -1, pools: -1 };
    return {
      kind: 'dsa',
      latent,
      pending: builder.fixed(name('pending'), 4 * poolTokens * 2 * indexDim),
      pools: builder.page(name('pools'), row(poolTokens, indexDim)),
    };
  });
  return { layout: builder.finish(), layers };
}
