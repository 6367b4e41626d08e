/** Float64 formulas of the mixture of experts. */
import { cut, dot, type CaseView } from './case-view.js';
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
      return project('gate').map((gate, i) => c.A(c.silu(gate) * up[i]!));
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
    const gates = c.buffer('sharedGate', 1);
    const out = c.buffer('shared', hidden).flatMap((shared, row) =>
      shared.map((v, i) => {
        const y = weights[row]!.reduce((sum, w, slot) => sum + w * down[row * topK + slot]![i]!, 0);
        return c.A(c.A(y) + c.A((c.n('lowering') === 1 ? c.gate(gates[row]![0]!) : c.sigma(gates[row]![0]!)) * v));
      }),
    );
    return { 'moeCombine.out': out };
  },
};

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
