/** Recipes of the mixture of experts. */
import type { CaseWriter } from './op-case-writer.js';
import { distinct, DTYPES, type RecipeTable } from './op-recipe.js';

export const MOE_RECIPES = {
  router: {
    variants: 3,
    write: (c, v) => {
      const [experts, topK] = [
        [7, 2],
        [24, 5],
        [16, 16],
      ][v] as [number, number];
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
  scoreRouter: {
    variants: 7,
    write: (c, v) => {
      const [experts, topK, groups, groupsKept] = [
        [7, 2, 1, 1],
        [24, 5, 4, 2],
        [16, 16, 1, 1],
        [12, 3, 12, 5],
        [24, 4, 6, 3],
        [9, 3, 1, 1],
        [40, 6, 1, 1],
      ][v] as [number, number, number, number];
      const logits = v === 4 ? c.coarseInput('logits', experts) : c.input('logits', experts, 2);
      const withTable = v === 5;
      if (withTable) c.vocabulary(13);
      const entries = Array.from({ length: 13 }, () => distinct(c, topK, experts).reverse()).flat();
      c.add('scoreRouter', {
        ...{ logits, experts, topK, groups, groupsKept },
        score: [0, 0, 1, 1, 0, 1, 1][v]!,
        normalise: v === 2 || v === 3 ? 0 : 1,
        scaling: 2.5,
        bias: v === 0 || withTable ? -1 : c.weight('bias', experts, 'F32', v === 4 ? 0 : 0.3),
        table: withTable ? c.values('table', new Float32Array(Int32Array.from(entries).buffer)) : -1,
        ...{ outIndex: c.output('index', topK), outWeight: c.output('weight', topK) },
      });
    },
  },
  moeUp: {
    variants: 4,
    write: (c, v) => {
      const { experts, topK, offsets, list } = grouped(c);
      const [hidden, width] = v === 0 ? [37, 11] : [16, 20];
      const dtype = DTYPES[v % 3];
      const limit = v === 3 ? 8 : 0;
      const perExpert = (kind: string): string[] =>
        Array.from({ length: experts }, (_, e) => c.weight(`${kind} ${e}`, width * hidden, dtype));
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
      c.add('moeUp', { ...fields, out: c.output('out', topK * width), limit });
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
    variants: 3,
    write: (c, v) => {
      const [hidden, topK] = [21, 3];
      c.add('moeCombine', {
        down: c.input('down', topK * hidden),
        weights: c.input('weights', topK, 0.3),
        shared: c.input('shared', hidden),
        sharedGate: v === 2 ? -1 : c.input('sharedGate', 1, 3),
        ...{ hidden, topK },
        out: c.output('out', hidden),
        lowering: v % 2,
      });
    },
  },
} as const satisfies RecipeTable;

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
