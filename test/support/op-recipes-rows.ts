/** Recipes of the ops that treat every row by itself. */
import { DTYPES, EPS, type RecipeTable } from './op-recipe.js';

/** Rows that a row of the call holds in the variants that have several. */
const SUBROWS = 3;

/** What a `rows` field of 0 (R), 1 (M) or n (n for each of R) means for buffers: which rows, and how many in each. */
const kindOf = (rows: number): 'R' | 'M' => (rows === 1 ? 'M' : 'R');
const subrows = (rows: number): number => Math.max(rows, 1);

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
    variants: 6,
    write: (c, v) => {
      const group = [20, 16, 37, 5, 11, 21][v]!;
      const rows = [0, 0, 1, 0, SUBROWS, 0][v]!;
      const width = group * (rows === 0 ? 3 : 1);
      const source = c.input('in', width * subrows(rows), 2, kindOf(rows));
      const out = v === 1 ? source : c.output('out', width * subrows(rows), kindOf(rows));
      const gain = v === 5 ? -1 : c.weight('gain', width, 'F32', 0.3, 1);
      c.add('norm', { rows, in: source, out, width, group, gain, eps: EPS });
    },
  },
  linear: {
    variants: 4,
    write: (c, v) => {
      const inWidth = [37, 64, 5, 19][v]!;
      const rows = [0, 1, 0, SUBROWS][v]!;
      const source = c.input('in', inWidth * subrows(rows), 1, kindOf(rows));
      const first = { weight: c.weight('a', 19 * inWidth, DTYPES[v % 3]), out: 'wide', outs: 19 };
      c.output('wide', rows === SUBROWS ? 19 * SUBROWS : 24, kindOf(rows));
      if (rows === SUBROWS) {
        c.linear({ rows, in: source, inWidth, segments: 1 }, [{ ...first, outColumn: 0 }]);
        return;
      }
      c.output('narrow', 3, kindOf(rows));
      const [b, last] = [c.weight('b', 3 * inWidth, DTYPES[v + 1]), c.weight('c', 2 * inWidth, DTYPES[(v + 2) % 3])];
      c.linear({ rows, in: source, inWidth, segments: 3 }, [
        { ...first, outColumn: 2 },
        { weight: b, bias: c.weight('bias', 3), out: 'narrow', outColumn: 0, outs: 3 },
        { weight: last, out: 'wide', outColumn: 21, outs: 2 },
      ]);
    },
  },
  hcAct: {
    variants: 5,
    write: (c, v) => {
      const streams = [4, 2, 3, 4, 2][v]!;
      const rows = [0, 0, 0, 1, SUBROWS][v]!;
      const down = c.input('down', 21 * subrows(rows), 3, kindOf(rows));
      const inject = v === 3 ? -1 : c.input('inject', streams * subrows(rows), 12);
      c.add('hcAct', { rows, down, rank: 21, inject, streams, lowering: v % 2 });
    },
  },
  hcMix: {
    variants: 3,
    write: (c, v) => {
      const rows = [0, 1, SUBROWS][v]!;
      // Streams are taken four at a time: whole fours, a rest behind them over two cuts, and a rest alone.
      const [hidden, streams] = (
        [
          [19, 4],
          [530, 6],
          [33, 3],
        ] as const
      )[v]!;
      const width = hidden * streams * subrows(rows);
      const mix = c.input('mix', width, 3, kindOf(rows));
      const normed = c.input('normed', width, 1, kindOf(rows));
      const out = c.output('out', hidden * subrows(rows), kindOf(rows));
      c.add('hcMix', { rows, mix, normed, out, hidden, streams });
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
    variants: 3,
    write: (c, v) => {
      const gate = c.input('gate', 43, 3);
      const limit = v === 2 ? 0.75 : 0;
      c.add('swiglu', { gate, up: c.input('up', 43), out: v === 0 ? c.output('out', 43) : gate, width: 43, limit });
    },
  },
  groupedLinear: {
    variants: 4,
    write: (c, v) => {
      const [groups, groupIn, groupOut, rowStride, rowOffset] = [
        [3, 20, 11, 11, 0],
        [2, 37, 7, 19, 5],
        [4, 16, 33, 40, 7],
        [2, 5, 3, 4, 1],
      ][v] as [number, number, number, number, number];
      const rows = [0, 0, 1, SUBROWS][v]!;
      c.add('groupedLinear', {
        rows,
        in: c.input('in', groups * groupIn * subrows(rows), 1, kindOf(rows)),
        out: c.output('out', groups * groupOut * subrows(rows), kindOf(rows)),
        ...{ groups, groupIn, groupOut },
        weight: c.weight('weight', groups * rowStride * groupIn, DTYPES[v % 3]),
        ...{ rowStride, rowOffset },
      });
    },
  },
  layerNorm: {
    variants: 3,
    write: (c, v) => {
      const width = [22, 16, 7][v]!;
      const rows = [0, 1, SUBROWS][v]!;
      const source = c.input('in', width * subrows(rows), 2, kindOf(rows));
      const out = v === 1 ? source : c.output('out', width * subrows(rows), kindOf(rows));
      const [gain, bias] = [c.weight('gain', width, 'F32', 0.3, 1), c.weight('bias', width)];
      c.add('layerNorm', { rows, in: source, out, width, gain, bias, eps: EPS });
    },
  },
  mhcWeights: {
    variants: 5,
    write: (c, v) => {
      const streams = [4, 2, 3, 8, 4][v]!;
      const iterations = [20, 1, 0, 3, 2][v]!;
      const rows = [0, 0, 1, 0, SUBROWS][v]!;
      const width = iterations === 0 ? streams : (2 + streams) * streams;
      const source = c.input('in', width * subrows(rows), 1, kindOf(rows));
      const out = v === 1 ? source : c.output('out', width * subrows(rows), kindOf(rows));
      const scale = c.weight('scale', iterations === 0 ? 1 : 3, 'F32', 0.3, 1);
      const eps = v === 3 ? 1e-2 : EPS;
      c.add('mhcWeights', { rows, in: source, out, streams, iterations, scale, base: c.weight('base', width), eps });
    },
  },
  mhcSum: {
    variants: 4,
    write: (c, v) => {
      const [hidden, streams] = v === 0 ? [19, 4] : [33, 3];
      const rows = [0, 1, SUBROWS, 1][v]!;
      const weightsWidth = [24, 3, 5, 3][v]!;
      const weights = v === 3 ? -1 : c.input('weights', weightsWidth * subrows(rows), 1, kindOf(rows));
      const residual = c.input('residual', hidden * streams * subrows(rows), 2, kindOf(rows));
      const out = c.output('out', hidden * subrows(rows), kindOf(rows));
      c.add('mhcSum', { rows, weights, weightsWidth, residual, out, hidden, streams });
    },
  },
  mhcWrite: {
    variants: 3,
    write: (c, v) => {
      const [hidden, streams] = [
        [19, 4],
        [33, 2],
        [5, 8],
      ][v] as [number, number];
      const weightsWidth = (2 + streams) * streams + v;
      const residual = c.input('residual', hidden * streams, 2);
      const weights = c.input('weights', weightsWidth);
      c.add('mhcWrite', { residual, weights, weightsWidth, y: c.input('y', hidden), hidden, streams });
    },
  },
  add: {
    variants: 4,
    write: (c, v) => {
      const rows = [0, 0, 1, SUBROWS][v]!;
      const width = 43 * subrows(rows);
      const [a, b] = [c.input('a', width, 1, kindOf(rows)), c.input('b', width, 3, kindOf(rows))];
      c.add('add', { rows, a, b, out: [a, b][v] ?? c.output('out', width, kindOf(rows)), width: 43 });
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
  embedGreedy: {
    variants: 3,
    write: (c, v) => {
      const [vocab, copies] = [[11, 300, 513][v]!, [1, 3, 4][v]!];
      c.add('embedGreedy', {
        logits: c.input('logits', vocab, 1),
        vocab,
        outIds: c.output('ids', 1),
        out: c.output('out', 13 * copies),
        width: 13,
        copies,
        weight: c.weight('table', vocab * 13, DTYPES[v]),
      });
    },
  },
} as const satisfies RecipeTable;
