/** Float64 formulas of the mixture of experts. */
import { cut, dot, sigmoid, type CaseView } from './case-view.js';
import type { FormulaTable } from './formulas.js';

export const MOE_FORMULAS: FormulaTable = {
  router: (c) => {
    const topK = c.n('topK');
    const index: number[] = [];
    const weight: number[] = [];
    for (const logits of c.buffer('logits', c.n('experts'))) {
      const most = Math.max(...logits);
      const e = logits.map((l) => Math.exp(l - most));
      const total = e.reduce((sum, v) => sum + v, 0);
      const beats = (a: number, b: number): boolean => logits[a]! > logits[b]! || (logits[a] === logits[b] && a < b);
      const chosen = logits.flatMap((_, b) => (logits.filter((__, a) => beats(a, b)).length < topK ? [b] : []));
      const kept = chosen.reduce((sum, b) => sum + e[b]! / total, 0);
      index.push(...chosen);
      weight.push(...chosen.map((b) => c.A(e[b]! / total / (c.n('normalise') === 1 ? kept : 1))));
    }
    return { 'router.outIndex': index, 'router.outWeight': weight };
  },
  scoreRouter: (c) => {
    const [experts, topK, groups] = [c.n('experts'), c.n('topK'), c.n('groups')];
    const size = experts / groups;
    const bias = c.op.fields.bias === -1 ? undefined : c.weight('bias');
    const score = (l: number): number => (c.n('score') === 0 ? sigmoid(l) : Math.sqrt(Math.log(1 + Math.exp(l))));
    const index: number[] = [];
    const weight: number[] = [];
    c.buffer('logits', experts).forEach((logits, row) => {
      const s = logits.map(score);
      const t = s.map((v, e) => v + (bias?.[e] ?? 0));
      const blocks = cut(t, size).map((block) =>
        block
          .sort((a, b) => b - a)
          .slice(0, 2)
          .reduce((a, b) => a + b),
      );
      const kept = best(blocks, c.n('groupsKept'));
      const open = t.map((v, e) => (kept.includes(Math.floor(e / size)) ? v : Number.NEGATIVE_INFINITY));
      const chosen = c.op.fields.table === -1 ? best(open, topK) : listed(c, topK, c.rows[row]!.token);
      const sum = c.n('normalise') === 1 ? chosen.reduce((total, e) => total + s[e]!, 1e-20) : 1;
      index.push(...chosen);
      weight.push(...chosen.map((e) => c.A((s[e]! / sum) * c.n('scaling'))));
    });
    return { 'scoreRouter.outIndex': index, 'scoreRouter.outWeight': weight };
  },
  moeGroup: (c) => {
    const experts = c.n('experts');
    const index = c.buffer('index', 1).flat();
    const byExpert = Array.from({ length: experts }, (_, e) =>
      index.flatMap((expert, pair) => (expert === e ? [pair] : [])),
    );
    const offsets = Array.from({ length: experts + 1 }, (_, e) => byExpert.slice(0, e).flat().length);
    return { 'moeGroup.outOffsets': offsets, 'moeGroup.outList': byExpert.flat() };
  },
  moeUp: (c) => {
    const input = c.buffer('in', c.n('hidden'));
    const out = pairs(c, (expert, pair) => {
      const x = input[Math.floor(pair / c.n('topK'))]!;
      const project = (kind: string): number[] =>
        cut(c.weight(`${kind} ${expert}`), c.n('hidden')).map((w) => c.A(dot(w, x)));
      const up = project('up');
      return project('gate').map((gate, i) => c.swiglu(gate, up[i]!));
    });
    return { 'moeUp.out': out };
  },
  moeDown: (c) => {
    const input = c.buffer('in', c.n('width'));
    const out = pairs(c, (expert, pair) =>
      cut(c.weight(`down ${expert}`), c.n('width')).map((w) => c.A(dot(w, input[pair]!))),
    );
    return { 'moeDown.out': out };
  },
  moeCombine: (c) => {
    const [hidden, topK] = [c.n('hidden'), c.n('topK')];
    const [down, weights] = [c.buffer('down', hidden), c.buffer('weights', topK)];
    const gates = c.op.fields.sharedGate === -1 ? undefined : c.buffer('sharedGate', 1).flat();
    const gate = (row: number): number => {
      if (!gates) return 1;
      return c.n('lowering') === 1 ? c.gate(gates[row]!) : c.sigma(gates[row]!);
    };
    const out = c.buffer('shared', hidden).flatMap((shared, row) =>
      shared.map((v, i) => {
        const y = weights[row]!.reduce((sum, w, slot) => sum + w * down[row * topK + slot]![i]!, 0);
        return c.A(c.A(y) + c.A(gate(row) * v));
      }),
    );
    return { 'moeCombine.out': out };
  },
};

/** Indices of the greatest values, ascending; equal ones: the lower index. */
function best(values: readonly number[], count: number): number[] {
  const beats = (a: number, b: number): boolean => values[a]! > values[b]! || (values[a] === values[b] && a < b);
  return values.flatMap((_, b) => (values.filter((__, a) => beats(a, b)).length < count ? [b] : []));
}

/** The experts of a token in the table, ascending. */
function listed(c: CaseView, topK: number, token: number): number[] {
  const { bytes } = c.given.weights.find(({ name }) => name === 'table')!;
  return Array.from(new Int32Array(bytes.buffer).slice(token * topK, (token + 1) * topK)).sort((a, b) => a - b);
}

/** The outputs of every pair in pair order, whatever order the list groups them in. */
function pairs(c: CaseView, compute: (expert: number, pair: number) => number[]): number[] {
  const starts = c.buffer('offsets', 1).flat();
  const list = c.buffer('list', 1).flat();
  const out: number[][] = [];
  list.forEach(
    (pair, at) =>
      (out[pair] = compute(
        starts.findLastIndex((start) => start <= at),
        pair,
      )),
  );
  return out.flat();
}
