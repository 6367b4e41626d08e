/** Recipes of the ops that read or write states and pages. */
import { BLOCK, EPS, selections, type RecipeTable } from './op-recipe.js';

export const MIXER_RECIPES = {
  conv: {
    variants: 3,
    write: (c, v) => {
      const [channels, kernel, dilation] = [
        [21, 4, 1],
        [10, 4, 3],
        [35, 2, 2],
      ][v] as [number, number, number];
      c.add('conv', {
        in: c.input('in', channels),
        out: c.output('out', channels),
        channels,
        kernel,
        dilation,
        weight: c.weight('taps', channels * kernel),
        state: c.fixed((kernel - 1) * dilation * channels),
      });
    },
  },
  gatedDelta: {
    variants: 2,
    write: (c, v) => {
      const [keyHeads, valueHeads, keyDim, valueDim] = v === 0 ? [2, 6, 20, 9] : [3, 3, 16, 24];
      const heads = { keyHeads, valueHeads, keyDim, valueDim };
      const decays = Float32Array.from({ length: valueHeads }, () => -Math.exp(c.normal()));
      c.add('gatedDelta', {
        conv: c.input('conv', 2 * keyHeads * keyDim + valueHeads * valueDim),
        a: c.input('a', valueHeads, 4),
        b: c.input('b', valueHeads, 2),
        out: c.output('out', valueHeads * valueDim),
        ...heads,
        negExpA: c.values('negExpA', decays),
        dtBias: c.weight('dtBias', valueHeads),
        state: c.fixed(valueHeads * keyDim * valueDim),
      });
    },
  },
  kda: {
    variants: 3,
    write: (c, v) => {
      const [heads, dim] = [
        [3, 20],
        [2, 16],
        [1, 37],
      ][v] as [number, number];
      const width = heads * dim;
      c.add('kda', {
        conv: c.input('conv', 3 * width),
        f: c.input('f', width, 3),
        b: c.input('b', heads, 2),
        out: c.output('out', width),
        ...{ heads, dim },
        bound: v === 1 ? 0 : 5,
        expA: c.values(
          'expA',
          Float32Array.from({ length: heads }, () => Math.exp(c.normal())),
        ),
        dtBias: c.weight('dtBias', width),
        state: c.fixed(width * dim),
      });
    },
  },
  attentionPrep: {
    variants: 2,
    write: (c, v) => {
      const [heads, kvHeads, dim, rotary] = v === 0 ? [4, 2, 20, 8] : [3, 1, 18, 18];
      const elements = kvHeads * c.pageTokens * dim;
      c.add('attentionPrep', {
        q: c.input('q', heads * 2 * dim, 2),
        k: c.input('k', kvHeads * dim, 2),
        v: c.input('v', kvHeads * dim),
        outQ: c.output('outQ', heads * dim),
        ...{ heads, kvHeads, dim, rotary },
        qGain: c.weight('qGain', dim, 'F32', 0.3, 1),
        kGain: c.weight('kGain', dim, 'F32', 0.3, 1),
        eps: EPS,
        rope: c.ropeTable('rope', rotary),
        keys: c.page(elements),
        values: c.page(elements),
      });
    },
  },
  indexPrep: {
    variants: 1,
    write: (c) => {
      const [heads, dim, rotary] = [3, 22, 8];
      c.add('indexPrep', {
        qk: c.input('qk', (heads + 1) * dim, 2),
        outQ: c.output('outQ', heads * dim),
        ...{ heads, dim, rotary },
        qGain: c.weight('qGain', dim, 'F32', 0.3, 1),
        eps: EPS,
        rope: c.ropeTable('rope', rotary),
        raw: c.page(c.pageTokens * dim),
      });
    },
  },
  indexBlocks: {
    variants: 2,
    write: (c, v) => {
      const [dim, rotary, block] = v === 0 ? [22, 8, BLOCK] : [16, 16, 8];
      c.add('indexBlocks', {
        ...{ dim, block, rotary },
        kGain: c.weight('kGain', dim, 'F32', 0.3, 1),
        eps: EPS,
        rope: c.ropeTable('rope', rotary),
        raw: c.page(c.pageTokens * dim),
        blocks: c.page((c.pageTokens / block) * dim),
      });
    },
  },
  indexSelect: {
    variants: 5,
    write: (c, v) => {
      const tie = v === 1 || v === 4; // most scores tie
      const [heads, dim] = tie ? [1, 2] : [3, 22];
      const budgetBlocks = [2, 3, 40, 2, 3][v]!;
      const weighted = v >= 3;
      c.add('indexSelect', {
        q: tie ? c.coarseInput('q', heads * dim) : c.input('q', heads * dim),
        out: c.output('out', 1 + budgetBlocks),
        ...{ heads, dim, block: BLOCK, budgetBlocks },
        blocks: c.page((c.pageTokens / BLOCK) * dim),
        weights: !weighted ? -1 : tie ? c.coarseInput('weights', heads) : c.input('weights', heads),
        weightScale: weighted ? heads ** -0.5 : 1,
        dotScale: weighted ? dim ** -0.5 : 1,
      });
    },
  },
  attention: {
    variants: 4,
    write: (c, v) => {
      const [heads, kvHeads, dim] = v % 2 === 0 ? [4, 2, 20] : [3, 1, 35];
      const budgetBlocks = v < 2 ? 0 : 2;
      const elements = kvHeads * c.pageTokens * dim;
      c.add('attention', {
        q: c.input('q', heads * dim),
        packed: c.input('packed', heads * 2 * dim, 3),
        select: v < 2 ? -1 : c.ints('select', 1 + budgetBlocks, selections(c, budgetBlocks)),
        out: c.output('out', heads * dim),
        ...{ heads, kvHeads, dim, block: v < 2 ? 0 : BLOCK, budgetBlocks },
        lowering: v % 2,
        scale: dim ** -0.5,
        keys: c.page(elements),
        values: c.page(elements),
      });
    },
  },
} as const satisfies RecipeTable;
