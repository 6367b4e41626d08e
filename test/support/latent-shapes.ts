/**
 * Cases of shared-row attention and pooling in shapes that reach every path of the fast kernels: many heads and many keys,
 * whole and partial vectors, runs over many pages, rings that wrap within a call, selections far apart.
 */
import type { OpCase } from './op-case.js';
import { CaseWriter, type CaseShape } from './op-case-writer.js';
import { CASE_LAWS } from './op-cases.js';

const LAWS = CASE_LAWS.filter(({ name }) => name === 'f32' || name === 'f32-kv16' || name === 'bf16');
const SHAPE: CaseShape = { pageTokens: 16, sequences: [[700, 3], [0, 40], [230, 1]] }; // prettier-ignore

/** `budget` blocks of those that are complete, some of them neighbours; all of them where they are no more. */
function selection(c: CaseWriter, block: number, budget: number): number[] {
  return c.positions.flatMap((position) => {
    const complete = Math.floor((position + 1) / block);
    if (complete <= budget) return [-1, ...Array<number>(budget).fill(-5)];
    const far = Array.from({ length: budget - 3 }, (_, i) => Math.floor((i * (complete - 3)) / (budget - 3)));
    return [budget, ...far, complete - 3, complete - 2, complete - 1];
  });
}

function windowCases(): OpCase[] {
  const sizes = [
    { heads: 19, dim: 32, window: 48, block: 4, select: true },
    { heads: 5, dim: 52, window: 128, block: 8, select: false },
    { heads: 64, dim: 16, window: 7, block: 0, select: false },
  ];
  return LAWS.flatMap((law) =>
    sizes.map(({ heads, dim, window, block, select }, n) => {
      const c = new CaseWriter(`windowAttention long ${law.name} ${n}`, 'windowAttention', law, SHAPE, false);
      const budgetBlocks = select ? 9 : 0;
      c.add('windowAttention', {
        q: c.input('q', heads * dim),
        kv: c.input('kv', dim),
        select: select ? c.ints('select', 1 + budgetBlocks, selection(c, block, budgetBlocks)) : -1,
        out: c.output('out', heads * dim),
        ...{ heads, dim, window, block, budgetBlocks },
        sink: c.weight('sink', heads, 'F32', 2),
        scale: dim ** -0.5,
        state: c.fixed(window * dim),
        compressed: c.page(block === 0 ? 1 : (c.pageTokens / block) * dim),
      });
      return c.finish();
    }),
  );
}

function latentCases(): OpCase[] {
  const sizes = [
    { heads: 19, dim: 32, block: 4, budgetBlocks: 9, tail: 1 },
    { heads: 5, dim: 52, block: 8, budgetBlocks: 5, tail: 0 },
    { heads: 9, dim: 40, block: 0, budgetBlocks: 0, tail: 0 },
  ];
  return LAWS.flatMap((law) =>
    sizes.map(({ heads, dim, block, budgetBlocks, tail }, n) => {
      const c = new CaseWriter(`latentAttention long ${law.name} ${n}`, 'latentAttention', law, SHAPE, false);
      c.add('latentAttention', {
        q: c.input('q', heads * dim),
        select: block > 0 ? c.ints('select', 1 + budgetBlocks, selection(c, block, budgetBlocks)) : -1,
        out: c.output('out', heads * dim),
        ...{ heads, dim, block, budgetBlocks, tail },
        scale: dim ** -0.5,
        latent: c.page(c.pageTokens * dim),
      });
      return c.finish();
    }),
  );
}

/** Windows of one token, of a page, and such that a ring wraps several times within the call. */
function poolCases(): OpCase[] {
  const sizes = [
    { channels: 64, window: 16, overlap: 1 },
    { channels: 33, window: 1, overlap: 0 },
    { channels: 48, window: 2, overlap: 1 },
  ];
  const shape: CaseShape = { pageTokens: 16, sequences: [[30, 35], [7, 1], [15, 18]] }; // prettier-ignore
  return LAWS.flatMap((law) =>
    sizes.map(({ channels, window, overlap }, n) => {
      const c = new CaseWriter(`pool long ${law.name} ${n}`, 'pool', law, shape, false);
      const width = (1 + overlap) * channels;
      c.add('pool', {
        values: c.input('values', width, 2),
        gates: c.input('gates', width, 4),
        ...{ channels, window, overlap },
        ape: c.weight('ape', window * width),
        gain: c.weight('gain', channels, 'F32', 0.3, 1),
        eps: 1e-6,
        rope: c.ropeTable('rope', 32),
        rotary: 32,
        state: c.fixed((1 + overlap) * window * 2 * width),
        pooled: c.page((c.pageTokens / window) * channels),
      });
      return c.finish();
    }),
  );
}

export function latentShapeCases(): OpCase[] {
  return [...windowCases(), ...latentCases(), ...poolCases()];
}

/** One row far beyond the context that the keys of a unit are sized for. */
export function farCase(): OpCase {
  const [heads, dim, window, block] = [6, 16, 32, 1];
  const shape: CaseShape = { pageTokens: 64, sequences: [[300_000, 1]] };
  const law = LAWS.find(({ name }) => name === 'bf16')!;
  const c = new CaseWriter('windowAttention far', 'windowAttention', law, shape, false);
  c.add('windowAttention', {
    q: c.input('q', heads * dim, 0.2),
    kv: c.input('kv', dim),
    select: -1,
    out: c.output('out', heads * dim),
    ...{ heads, dim, window, block, budgetBlocks: 0 },
    sink: -1,
    scale: dim ** -0.5,
    state: c.fixed(window * dim),
    compressed: c.page((c.pageTokens / block) * dim),
  });
  return c.finish();
}
