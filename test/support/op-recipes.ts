/** How a random case of every op is written: its sizes, its inputs, and what its variants turn on. */
import type { OpName, WeightDtype } from '../../src/engine/plan/ops.js';
import type { CaseWriter } from './op-case-writer.js';

interface Recipe {
  readonly variants: number;
  readonly write: (c: CaseWriter, variant: number) => void;
}

const EPS = 1e-6;
const DTYPES: readonly WeightDtype[] = ['F32', 'BF16', 'F16'];
const BLOCK = 4;

export const OP_RECIPES: Readonly<Record<OpName, Recipe>> = {
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
    variants: 3,
    write: (c, v) => {
      const inWidth = [37, 64, 5][v]!;
      const rows = v === 1 ? 'M' : 'R';
      const source = c.input('in', inWidth, 1, rows);
      c.output('wide', 24, rows);
      c.output('narrow', 3, rows);
      c.linear({ rows: v === 1 ? 1 : 0, in: source, inWidth, segments: 3 }, [
        { weight: c.weight('a', 19 * inWidth, DTYPES[v]), out: 'wide', outColumn: 2, outs: 19 },
        { weight: c.weight('b', 3 * inWidth, DTYPES[(v + 1) % 3]), bias: c.weight('bias', 3), out: 'narrow', outColumn: 0, outs: 3 }, // prettier-ignore
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
    variants: 1,
    write: (c) => {
      const residual = c.input('residual', 57, 2);
      c.add('hcWrite', { residual, inject: c.input('inject', 3), y: c.input('y', 19), hidden: 19, streams: 3 });
    },
  },
  conv: {
    variants: 3,
    write: (c, v) => {
      const [channels, kernel, dilation] = [[21, 4, 1], [10, 4, 3], [35, 2, 2]][v] as [number, number, number]; // prettier-ignore
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
  gatedNorm: {
    variants: 2,
    write: (c, silu) => {
      const width = 3 * 22;
      const fields = { in: c.input('in', width, 0.01), z: c.input('z', width, 3), out: c.output('out', width) };
      c.add('gatedNorm', { ...fields, heads: 3, dim: 22, weight: c.weight('gain', 22, 'F32', 0.3, 1), eps: EPS, silu });
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
    variants: 3,
    write: (c, v) => {
      const [heads, dim] = v === 1 ? [1, 2] : [3, 22]; // variant 1: most scores tie
      const budgetBlocks = [2, 3, 40][v]!;
      c.add('indexSelect', {
        q: v === 1 ? c.coarseInput('q', heads * dim) : c.input('q', heads * dim),
        out: c.output('out', 1 + budgetBlocks),
        ...{ heads, dim, block: BLOCK, budgetBlocks },
        blocks: c.page((c.pageTokens / BLOCK) * dim),
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
  router: {
    variants: 3,
    write: (c, v) => {
      const [experts, topK] = [[7, 2], [24, 5], [16, 16]][v] as [number, number]; // prettier-ignore
      const logits = v === 1 ? c.coarseInput('logits', experts) : c.input('logits', experts, 2);
      const outputs = { outIndex: c.output('index', topK), outWeight: c.output('weight', topK) };
      c.add('router', { logits, experts, topK, normalise: v === 2 ? 0 : 1, ...outputs });
    },
  },
  moeGroup: {
    variants: 1,
    write: (c) => {
      const { experts, topK, chosen } = routing(c);
      const index = c.ints('index', topK, chosen);
      const outputs = { outOffsets: c.output('offsets', experts + 1), outList: c.output('list', topK) };
      c.add('moeGroup', { index, experts, topK, ...outputs });
    },
  },
  moeUp: {
    variants: 3,
    write: (c, v) => {
      const { experts, topK, offsets, list } = grouped(c);
      const [hidden, width] = v === 0 ? [37, 11] : [16, 20];
      const perExpert = (kind: string): string[] =>
        Array.from({ length: experts }, (_, e) => c.weight(`${kind} ${e}`, width * hidden, DTYPES[v]));
      const [gate, up] = [perExpert('gate'), perExpert('up')];
      const fields = {
        in: c.input('in', hidden),
        hidden,
        offsets,
        list,
        gate: gate[0]!,
        up: up[0]!,
        experts,
        topK,
        width,
      };
      c.add('moeUp', { ...fields, out: c.output('out', topK * width) });
    },
  },
  moeDown: {
    variants: 3,
    write: (c, v) => {
      const { experts, topK, offsets, list } = grouped(c);
      const [width, hidden] = v === 0 ? [37, 11] : [16, 20];
      const down = Array.from({ length: experts }, (_, e) => c.weight(`down ${e}`, width * hidden, DTYPES[v]));
      const fields = { in: c.input('in', topK * width), width, offsets, list, down: down[0]!, experts, topK, hidden };
      c.add('moeDown', { ...fields, out: c.output('out', topK * hidden) });
    },
  },
  moeCombine: {
    variants: 2,
    write: (c, lowering) => {
      const [hidden, topK] = [21, 3];
      c.add('moeCombine', {
        down: c.input('down', topK * hidden),
        weights: c.input('weights', topK, 0.3),
        shared: c.input('shared', hidden),
        sharedGate: c.input('sharedGate', 1, 3),
        ...{ hidden, topK },
        out: c.output('out', hidden),
        lowering,
      });
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
    variants: 2,
    write: (c, lowering) => {
      const [hidden, streams] = [37, 3];
      c.add('pleGate', {
        key: c.input('key', hidden * streams, 3),
        query: c.input('query', hidden * streams),
        value: c.input('value', hidden),
        out: c.output('out', hidden * streams),
        ...{ hidden, streams },
        rootHidden: Math.sqrt(hidden),
        lowering,
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
};

/** `count` distinct numbers below `bound`, ascending. */
function distinct(c: CaseWriter, count: number, bound: number): number[] {
  const left = Array.from({ length: bound }, (_, i) => i);
  const taken = Array.from({ length: count }, () => left.splice(c.below(left.length), 1)[0]!);
  return taken.sort((a, b) => a - b);
}

/** What indexSelect could have written: everything, or `budget` of the complete blocks. */
function selections(c: CaseWriter, budget: number): number[] {
  return c.positions.flatMap((position) => {
    const complete = Math.floor((position + 1) / BLOCK);
    return complete <= budget ? [-1, ...Array<number>(budget).fill(7777)] : [budget, ...distinct(c, budget, complete)];
  });
}

function routing(c: CaseWriter): { experts: number; topK: number; chosen: number[] } {
  const [experts, topK] = [6, 2];
  return { experts, topK, chosen: c.positions.flatMap(() => distinct(c, topK, experts - 1)) }; // the last expert gets none
}

/** Pairs by expert, as moeGroup leaves them. */
function grouped(c: CaseWriter): { experts: number; topK: number; offsets: string; list: string } {
  const { experts, topK, chosen } = routing(c);
  const pairs = Array.from(chosen.keys()).sort((a, b) => chosen[a]! - chosen[b]! || a - b);
  const starts = Array.from({ length: experts + 1 }, (_, e) => chosen.filter((expert) => expert < e).length);
  return { experts, topK, offsets: c.ints('offsets', experts + 1, starts), list: c.ints('list', topK, pairs) };
}
