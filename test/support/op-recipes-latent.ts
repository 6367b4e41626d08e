/** Recipes of attention whose keys are their own values, and of what feeds it. */
import { BLOCK, EPS, selections, type RecipeTable } from './op-recipe.js';

export const LATENT_RECIPES = {
  ropeTail: {
    variants: 4,
    write: (c, v) => {
      const [heads, dim, rotary] = [
        [3, 20, 8],
        [1, 18, 18],
        [2, 37, 6],
        [2, 43, 38],
      ][v] as [number, number, number];
      const rows = [0, 0, 1, 3][v]!;
      const width = heads * dim * Math.max(rows, 1);
      const kind = rows === 1 ? 'M' : 'R';
      const source = c.input('in', width, 2, kind);
      const out = v === 1 ? source : c.output('out', width, kind);
      const rope = c.ropeTable('rope', rotary);
      c.add('ropeTail', { rows, in: source, out, heads, dim, rotary, rope, inverse: v % 2 });
    },
  },
  pool: {
    variants: 4,
    write: (c, v) => {
      const [channels, window, overlap, rotary] = [
        [20, 4, 0, 0],
        [18, 4, 1, 6],
        [37, 8, 0, 10],
        [16, 8, 1, 0],
      ][v] as [number, number, number, number];
      const width = (1 + overlap) * channels;
      c.add('pool', {
        values: c.input('values', width, 2),
        gates: c.input('gates', width, 2),
        ...{ channels, window, overlap },
        ape: c.weight('ape', window * width),
        gain: v === 0 ? -1 : c.weight('gain', channels, 'F32', 0.3, 1),
        eps: EPS,
        rope: rotary === 0 ? -1 : c.ropeTable('rope', rotary),
        rotary,
        state: c.fixed((1 + overlap) * window * 2 * width),
        pooled: c.page((c.pageTokens / window) * channels),
      });
    },
  },
  windowAttention: {
    variants: 4,
    write: (c, v) => {
      const [heads, dim, window, block] = [
        [4, 20, 5, 0],
        [3, 35, 16, BLOCK],
        [6, 16, 8, BLOCK],
        [2, 20, 3, 8],
      ][v] as [number, number, number, number];
      const budgetBlocks = v === 2 ? 2 : 0;
      c.add('windowAttention', {
        q: c.input('q', heads * dim),
        kv: c.input('kv', dim),
        select: v === 2 ? c.ints('select', 1 + budgetBlocks, selections(c, budgetBlocks)) : -1,
        out: c.output('out', heads * dim),
        ...{ heads, dim, window, block, budgetBlocks },
        sink: v === 3 ? -1 : c.weight('sink', heads, 'F32', 2),
        scale: dim ** -0.5,
        state: c.fixed(window * dim),
        compressed: c.page(block === 0 ? 1 : (c.pageTokens / block) * dim),
      });
    },
  },
  latentAttention: {
    variants: 3,
    write: (c, v) => {
      const [heads, dim] = v === 1 ? [4, 20] : [3, 35];
      const budgetBlocks = v === 0 ? 0 : 2;
      c.add('latentAttention', {
        q: c.input('q', heads * dim),
        select: v === 0 ? -1 : c.ints('select', 1 + budgetBlocks, selections(c, budgetBlocks)),
        out: c.output('out', heads * dim),
        ...{ heads, dim, block: v === 0 ? 0 : BLOCK, budgetBlocks, tail: v === 1 ? 1 : 0 },
        scale: dim ** -0.5,
        latent: c.page(c.pageTokens * dim),
      });
    },
  },
  latentStore: {
    variants: 2,
    write: (c, v) => {
      const dim = [21, 32][v]!;
      c.add('latentStore', { in: c.input('in', dim), dim, latent: c.page(c.pageTokens * dim) });
    },
  },
} as const satisfies RecipeTable;
