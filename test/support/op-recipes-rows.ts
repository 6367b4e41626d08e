/** Recipes of the ops that treat every row by itself. */
import { DTYPES, EPS, type RecipeTable } from './op-recipe.js';

export const ROW_RECIPES = {
  embed: {
    variants: 3,
    write: (c, v) => {
      c.vocabulary(11);
      const copies = [1, 3, 4][v]!;
      c.add('embed', {
        out: c.output('out', 13 * copies),
        width: 13,
        copies,
        weight: c.weight('table', 11 * 13, DTYPES[v]),
      });
    },
  },
  norm: {
    variants: 4,
    write: (c, v) => {
      const group = [20, 16, 37, 5][v]!;
      const rows = v === 2 ? 'M' : 'R';
      const width = group * (v === 2 ? 1 : 3);
      const source = c.input('in', width, 2, rows);
      const out = v === 1 ? source : c.output('out', width, rows);
      const gain = c.weight('gain', width, 'F32', 0.3, 1);
      c.add('norm', { rows: v === 2 ? 1 : 0, in: source, out, width, group, gain, eps: EPS });
    },
  },
  linear: {
    variants: 4,
    write: (c, v) => {
      const inWidth = [37, 64, 5, 19][v]!;
      const rows = v === 1 ? 'M' : 'R';
      const subrows = v === 3 ? 3 : 1;
      const source = c.input('in', inWidth * subrows, 1, rows);
      c.output('wide', 24 * subrows, rows);
      c.output('narrow', 3 * subrows, rows);
      c.linear({ rows: [0, 1, 0, subrows][v]!, in: source, inWidth, segments: 3 }, [
        { weight: c.weight('a', 19 * inWidth, DTYPES[v % 3]), out: 'wide', outColumn: 2, outs: 19 },
        {
          weight: c.weight('b', 3 * inWidth, DTYPES[(v + 1) % 3]),
          bias: c.weight('bias', 3),
          out: 'narrow',
          outColumn: 0,
          outs: 3,
        },
        { weight: c.weight('c', 2 * inWidth, DTYPES[(v + 2) % 3]), out: 'wide', outColumn: 21, outs: 2 },
      ]);
    },
  },
  hcAct: {
    variants: 4,
    write: (c, v) => {
      const streams = [4, 2, 3, 4][v]!;
      const rows = v === 3 ? 'M' : 'R';
      const down = c.input('down', 21, 3, rows);
      const inject = v === 3 ? -1 : c.input('inject', streams, 12);
      c.add('hcAct', { rows: v === 3 ? 1 : 0, down, rank: 21, inject, streams, lowering: v % 2 });
    },
  },
  hcMix: {
    variants: 2,
    write: (c, v) => {
      const [hidden, streams, rows] = v === 0 ? [19, 4, 'R' as const] : [33, 3, 'M' as const];
      const width = hidden * streams;
      const mix = c.input('mix', width, 3, rows);
      const normed = c.input('normed', width, 1, rows);
      c.add('hcMix', { rows: v, mix, normed, out: c.output('out', hidden, rows), hidden, streams });
    },
  },
  hcWrite: {
    variants: 2,
    write: (c, v) => {
      const residual = c.input('residual', 57, 2);
      const inject = v === 0 ? c.input('inject', 3) : -1;
      c.add('hcWrite', { residual, inject, y: c.input('y', 19), hidden: 19, streams: 3 });
    },
  },
  gatedNorm: {
    variants: 2,
    write: (c, silu) => {
      const width = 3 * 22;
      const fields = { in: c.input('in', width, 0.01), z: c.input('z', width, 3), out: c.output('out', width) };
      c.add('gatedNorm', { ...fields, heads: 3, dim: 22, weight: c.weight('gain', 22, 'F32', 0.3, 1), eps: EPS, silu });
    },
  },
  swiglu: {
    variants: 2,
    write: (c, v) => {
      const gate = c.input('gate', 43, 3);
      c.add('swiglu', { gate, up: c.input('up', 43), out: v === 0 ? c.output('out', 43) : gate, width: 43 });
    },
  },
  add: {
    variants: 3,
    write: (c, v) => {
      const rows = v === 2 ? 'M' : 'R';
      const [a, b] = [c.input('a', 43, 1, rows), c.input('b', 43, 3, rows)];
      c.add('add', { rows: v === 2 ? 1 : 0, a, b, out: [a, b, c.output('out', 43, rows)][v]!, width: 43 });
    },
  },
  pleGate: {
    variants: 3,
    write: (c, v) => {
      const [hidden, streams] = v === 2 ? [2, 4] : [37, 3]; // variant 2: many sums are exactly zero
      const width = hidden * streams;
      c.add('pleGate', {
        key: v === 2 ? c.coarseInput('key', width) : c.input('key', width, 3),
        query: v === 2 ? c.coarseInput('query', width) : c.input('query', width),
        value: c.input('value', hidden),
        out: c.output('out', width),
        ...{ hidden, streams },
        rootHidden: Math.sqrt(hidden),
        lowering: v % 2,
      });
    },
  },
  pleAdd: {
    variants: 1,
    write: (c) => {
      c.add('pleAdd', {
        residual: c.input('residual', 57, 2),
        u: c.input('u', 57),
        conv: c.input('conv', 57),
        width: 57,
      });
    },
  },
  gather: {
    variants: 1,
    write: (c) => {
      c.add('gather', { in: c.input('in', 29), out: c.output('out', 29, 'M'), width: 29 });
    },
  },
  tap: {
    variants: 1,
    write: (c) => {
      c.add('tap', { in: c.input('in', 29), out: c.output('out', 29), width: 29 });
    },
  },
} as const satisfies RecipeTable;
